// Names for the tests, which are in a package of their own.

package endpoints

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

func (s *Endpoints) InsertSecret(ctx context.Context, tx pgx.Tx, tenantID string, id webhook.EndpointID, version int, secret string) error {
	return s.insertSecret(ctx, tx, tenantID, id, version, secret)
}

const OpenAtATime = openAtATime

// RosterPage is the number of endpoints in one read of a roster.
const RosterPage = rosterPage

// What the tests look into.

package endpoints

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/webhook"
)

func (s *Endpoints) InsertSecret(a0 context.Context, a1 pgx.Tx, a2 string, a3 webhook.EndpointID, a4 int, a5 string) error {
	return s.insertSecret(a0, a1, a2, a3, a4, a5)
}

const OpenAtATime = openAtATime

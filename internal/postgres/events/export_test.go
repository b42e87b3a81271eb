// Names for the tests, which are in a package of their own.

package events

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
)

func (s *Events) FlushPostings(ctx context.Context, items []*posting) error {
	return s.flushPostings(ctx, items)
}
func (s *Events) Match(ctx context.Context, in *posting) error { return s.match(ctx, in) }

type Arrival = arrival

const DeliveriesPerEvent = deliveriesPerEvent

type Posting = posting

func (s *posting) Add(e webhook.NewEvent, key string) { s.add(e, key) }

type PostingKey = postingKey

var PostingOf = postingOf

const KeyExternalID = keyExternalID
const KeyIdempotency = keyIdempotency

var KeysOf = keysOf

func (s *keysUnderWay) Enter(tenantID string, keys []postingKey) *postingKey {
	return s.enter(tenantID, keys)
}
func (s *keysUnderWay) Leave(tenantID string, keys []postingKey) { s.leave(tenantID, keys) }

var ListEvents = listEvents

const MaxBatchDeliveries = maxBatchDeliveries
const MaxExpected = maxExpected

var ReadKeys = readKeys

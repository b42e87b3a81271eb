// What the tests look into.

package deliveries

import "context"

func (s *Deliveries) FlushClaims(a0 context.Context, a1 []*claiming) error {
	return s.flushClaims(a0, a1)
}
func (s *Deliveries) FlushRecords(a0 context.Context, a1 []*recording) error {
	return s.flushRecords(a0, a1)
}

var AppendText = appendText
var AppendTexts = appendTexts

const CancelBatch = cancelBatch

type Claiming = claiming

const ExpiredAfter = expiredAfter

var ListDeliveries = listDeliveries

const MaxTellings = maxTellings
const OverdueAfter = overdueAfter
const RecordWeight = recordWeight

type Recording = recording

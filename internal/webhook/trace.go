package webhook

import (
	"crypto/sha256"
	"encoding/hex"
)

// Trace says under which span the further spans of a delivery belong: a traceparent as in W3C Trace
// Context (version 00), "00-<trace id>-<span id>-<flags>". "" stands for no trace.
//
// It travels with the delivery through the inputs of workflows and activities. It is never stored in
// the database: a delivery that is found there begins a new trace.
type Trace string

// The parts of a traceparent: "00-", 32 digits, "-", 16 digits, "-", two digits.
const (
	traceLength = 55
	spanAt      = 36
	flagsAt     = 52
)

// InRun returns the trace under the span of a delivery in one run of a workflow. That span is made
// when the run ends, by any process, so its id follows from the run and the delivery.
func (t Trace) InRun(runID string, id DeliveryID) Trace {
	if len(t) != traceLength {
		return ""
	}
	sum := sha256.New()
	_, _ = sum.Write([]byte(runID)) // never fails
	_, _ = sum.Write(id[:])
	return t[:spanAt] + Trace(hex.EncodeToString(sum.Sum(nil)[:8])) + t[flagsAt:]
}

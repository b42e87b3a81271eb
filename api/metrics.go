package api

// The causes of Metrics.AuthFailed, in addition to the values of webhook.KeyError.
const (
	AuthMissing   = "missing"   // no Authorization
	AuthMalformed = "malformed" // not a Bearer token that can be a key
)

// The causes of Metrics.BodyRefused.
const (
	BodyOverTenant  = "tenant"  // the limit for the tenant's bodies is reached
	BodyOverProcess = "process" // the limit for the process's bodies is reached
	BodyTooSlow     = "slow"
)

// Metrics counts requests that are refused before their handler runs. The causes are the constants
// above and those of webhook.KeyError, never a value from the request.
type Metrics interface {
	AuthFailed(cause string)
	BodyRefused(cause string)
}

type noMetrics struct{}

func (noMetrics) AuthFailed(string)  {}
func (noMetrics) BodyRefused(string) {}

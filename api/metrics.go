package api

// Why a request's credentials were refused: the causes of Metrics.AuthFailed that are
// not a webhook.KeyError.
const (
	AuthMissing   = "missing"   // no Authorization
	AuthMalformed = "malformed" // not a Bearer token that can be a key
)

// Why a body was refused: the causes of Metrics.BodyRefused.
const (
	BodyOverTenant  = "tenant"  // the tenant's bodies hold all that they may
	BodyOverProcess = "process" // the process's do
	BodyTooSlow     = "slow"
)

// Metrics counts requests that are refused before a handler has seen them. The causes are
// those above and webhook's: never anything that a caller chose.
type Metrics interface {
	AuthFailed(cause string)
	BodyRefused(cause string)
}

type noMetrics struct{}

func (noMetrics) AuthFailed(string)  {}
func (noMetrics) BodyRefused(string) {}

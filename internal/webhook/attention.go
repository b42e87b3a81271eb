package webhook

// TroubledTenant is a tenant with endpoints that may need attention, or with new dead letters.
type TroubledTenant struct {
	TenantID    string
	Name        string
	Endpoints   int // that are stopped, or of which a process observes anything, healthy or not
	DeadLetters int // of the last hour
}

// OpenCounts counts what a tenant has waiting and given up, each up to MaxAttention.
type OpenCounts struct {
	Waiting, DeadLetters int
}

// MaxAttention is the number up to which the counts of OpenCounts go.
const MaxAttention = 1000

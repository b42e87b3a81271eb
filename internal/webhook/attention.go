package webhook

// TroubledTenant is a tenant with endpoints that may need attention, or with new dead letters.
type TroubledTenant struct {
	TenantID    string
	Name        string
	Endpoints   int // that are stopped, or of which a process observes anything, healthy or not
	DeadLetters int // that came within the last hour, whatever has become of them
}

// OpenCounts counts what a tenant has waiting, and its dead letters, each up to MaxAttention: what was sent again or discarded is no dead letter.
type OpenCounts struct {
	Waiting, DeadLetters int
	LastHour             int // those that were given up within the last hour, up to MaxAttention
}

// Undelivered counts the deliveries to an endpoint that have not arrived, each up to MaxListed. Cancelled and discarded ones are none.
type Undelivered struct {
	Waiting int // they are sent again, or for the first time
	Held    int
	GivenUp int // dead letters
}

// MaxAttention is the number up to which the counts of OpenCounts go.
const MaxAttention = 1000

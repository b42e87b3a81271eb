package activities

// MaxEager is for tests.
const MaxEager = maxEager

// Eager is how many eager requests are under way that are not slow.
func (a *Activities) Eager() int { return a.eager.InUse() }

// HoldPayloads takes the room of payloads of a tenant, as its attempts would.
func (a *Activities) HoldPayloads(tenant string, bytes int) (release func()) {
	room := payloadRoom{of: a.payloads, tenant: tenant}
	room.fit(bytes)
	return room.release
}

// PayloadBytes is how much room attempts hold.
func (a *Activities) PayloadBytes() int { return a.payloads.InUse() * payloadStep }

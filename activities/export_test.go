package activities

// MaxEager is for tests.
const MaxEager = maxEager

// UnderWay is how many eager requests are under way that are not slow.
func (e *EagerRequests) UnderWay() int { return e.eagerPlaces.InUse() }

// HoldPayloads takes the room of payloads of a tenant, as its attempts would.
func (a *Attempts) HoldPayloads(tenant string, bytes int) (release func()) {
	room := payloadRoom{of: a.payloads, tenant: tenant}
	room.fit(bytes)
	return room.release
}

// PayloadBytes is how much room attempts hold.
func (a *Attempts) PayloadBytes() int { return a.payloads.InUse() * payloadStep }

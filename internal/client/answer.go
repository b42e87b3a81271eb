package client

// Page is a page of a list of the API.
type Page[T any] struct {
	Data       []T    `json:"data"`
	NextCursor string `json:"next_cursor"`
}

// DeliveryStub is a delivery of an event.
type DeliveryStub struct {
	ID         string `json:"id"`
	EndpointID string `json:"endpoint_id"`
	State      string `json:"state"`
	Summary    string `json:"summary"`
}

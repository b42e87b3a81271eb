// Package client calls Everpost's HTTP API, version 1. Its types are the ones that the API itself encodes, so what the server
// answers and what a program reads cannot drift apart.
//
//	c, err := client.New(client.Config{URL: "https://everpost.example", Key: os.Getenv("EVERPOST_KEY")})
//	…
//	acme := c.Tenant("acme")
//	accepted, err := acme.Events.Post(ctx, client.EventInput{Type: "order.paid", Payload: order, ExternalID: "order-17-paid"})
//
// In the types, a nil pointer and a zero [Time] are JSON's null, and a field that says so may also be absent. Answers of a later version may
// have more fields, which are ignored, and more values in a named type such as [DeliveryState]. Durations are texts such as "15s", which
// [time.ParseDuration] reads.
//
// An answer that refuses a request is an [*Error], and no answer is a [*NoResponseError].
package client

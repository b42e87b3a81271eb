package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/everpost/everpost/client"
)

// An event with an external id may be posted again after an error: it is stored once.
func Example() { //nolint:testableexamples // there is no installation to call
	c, err := client.FromEnvironment() // EVERPOST_URL, EVERPOST_KEY
	if err != nil {
		log.Fatal(err)
	}
	accepted, err := c.Tenant("acme").Events.Post(context.Background(), client.EventInput{
		Type: "order.paid", Payload: map[string]int{"order": 17}, ExternalID: "order-17-paid",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(accepted.ID, accepted.Matched)
}

func ExampleList_All() { //nolint:testableexamples // there is no installation to call
	c, err := client.FromEnvironment()
	if err != nil {
		log.Fatal(err)
	}
	letters := c.Tenant("acme").DeadLetters.List(client.DeadLetterFilter{Reason: "max_attempts"})
	for d, err := range letters.All(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.ID, d.Summary)
	}
}

func ExampleError() { //nolint:testableexamples // there is no installation to call
	c, err := client.FromEnvironment()
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Tenant("acme").Endpoints.Create(context.Background(), client.EndpointInput{
		EndpointFields: client.EndpointFields{URL: "ftp://example.com"},
	}, client.IdempotencyKey("endpoint-of-shop-17"))
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Code() == client.CodeInvalid {
		for _, bad := range refused.Errors {
			fmt.Println(bad.Field, bad.Message)
		}
	}
}

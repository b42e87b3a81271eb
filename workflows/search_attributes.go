package workflows

import (
	"go.temporal.io/sdk/temporal"

	"github.com/everpost/everpost/internal/webhook"
)

// The search attributes of the workflows. A namespace must have them before the
// first start: keywords, all of them.
const (
	AttributeTenantID      = "TenantId"
	AttributeEndpointID    = "EndpointId"
	AttributeEventType     = "EventType"
	AttributeEventID       = "EventId"
	AttributeDeliveryState = "DeliveryState"
	AttributeEventIDs      = "EventIds" // of a workflow that carries several deliveries
)

// KeywordAttributes are the names of the search attributes of type Keyword, and
// KeywordListAttributes those of type KeywordList.
func KeywordAttributes() []string {
	return []string{AttributeTenantID, AttributeEndpointID, AttributeEventType, AttributeEventID, AttributeDeliveryState}
}

// KeywordListAttributes are the search attributes of type KeywordList.
func KeywordListAttributes() []string { return []string{AttributeEventIDs} }

// SearchAttributes are given with the start of a delivery's workflow, where they
// cost nothing. DeliveryState is not among them: it appears when the delivery
// leaves the happy path, because each later change costs an event and a write.
func SearchAttributes(ref webhook.Ref) temporal.SearchAttributes {
	return temporal.NewSearchAttributes(
		temporal.NewSearchAttributeKeyKeyword(AttributeTenantID).ValueSet(ref.TenantID),
		temporal.NewSearchAttributeKeyKeyword(AttributeEndpointID).ValueSet(ref.EndpointID.String()),
		temporal.NewSearchAttributeKeyKeyword(AttributeEventType).ValueSet(ref.EventType),
		temporal.NewSearchAttributeKeyKeyword(AttributeEventID).ValueSet(ref.EventID.String()),
	)
}

// StaticSummary is one line for the Web UI.
func StaticSummary(ref webhook.Ref) string { return ref.EventType + " to " + ref.EndpointID.String() }

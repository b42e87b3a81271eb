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

// DeadLetterAttributes are the search attributes of a workflow that begins with dead letters: those of a shared workflow, unless it has only one.
func DeadLetterAttributes(refs []webhook.Ref, maxEventIDs int) temporal.SearchAttributes {
	attributes := SearchAttributes(refs[0])
	if len(refs) > 1 {
		attributes = SharedAttributes(refs, maxEventIDs)
	}
	return temporal.NewSearchAttributes(attributes.Copy(),
		temporal.NewSearchAttributeKeyKeyword(AttributeDeliveryState).ValueSet(webhook.StateDeadLettered.String()))
}

// MaxEventIDs is how many ids go into one search attribute, unless Temporal is configured
// otherwise: it takes values of up to 2,048 bytes by default, which is 62.
const MaxEventIDs = 60

// EventIDBytes is what an id takes in a search attribute, with quotes and a comma.
const EventIDBytes = 33

// SharedAttributes are the search attributes of a workflow of several deliveries: the first maxEventIDs events, and what
// all deliveries have in common.
func SharedAttributes(deliveries []webhook.Ref, maxEventIDs int) temporal.SearchAttributes {
	var (
		first  = deliveries[0]
		events []string
		seen   = make(map[webhook.EventID]bool, len(deliveries))
		tenant = temporal.NewSearchAttributeKeyKeyword(AttributeTenantID).ValueSet(first.TenantID)
	)
	updates := []temporal.SearchAttributeUpdate{}
	for i := range deliveries {
		d := &deliveries[i]
		if !seen[d.EventID] && len(events) < maxEventIDs {
			seen[d.EventID] = true
			events = append(events, d.EventID.String())
		}
	}
	sameTenant, sameEndpoint, sameType := common(deliveries)
	updates = append(updates, temporal.NewSearchAttributeKeyKeywordList(AttributeEventIDs).ValueSet(events))
	if sameTenant {
		updates = append(updates, tenant)
	}
	if sameEndpoint {
		updates = append(updates, temporal.NewSearchAttributeKeyKeyword(AttributeEndpointID).ValueSet(first.EndpointID.String()))
	}
	if sameType {
		updates = append(updates, temporal.NewSearchAttributeKeyKeyword(AttributeEventType).ValueSet(first.EventType))
	}
	return temporal.NewSearchAttributes(updates...)
}

// common reports what deliveries have in common.
func common(deliveries []webhook.Ref) (tenant, endpoint, eventType bool) {
	tenant, endpoint, eventType = true, true, true
	first := &deliveries[0]
	for i := range deliveries {
		tenant = tenant && deliveries[i].TenantID == first.TenantID
		endpoint = endpoint && deliveries[i].EndpointID == first.EndpointID
		eventType = eventType && deliveries[i].EventType == first.EventType
	}
	return tenant, endpoint, eventType
}

// Summary is one line for the Web UI: the delivery, or how many the workflow has and what they have in common.
func Summary(refs []webhook.Ref) string {
	if len(refs) == 1 {
		return refs[0].EventType + " to " + refs[0].EndpointID.String()
	}
	text := deliveries(len(refs))
	_, sameEndpoint, sameType := common(refs)
	if sameType {
		text += " of " + refs[0].EventType
	}
	if sameEndpoint {
		text += " to " + refs[0].EndpointID.String()
	}
	return text
}

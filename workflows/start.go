package workflows

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/everpost/everpost/internal/webhook"
)

const fanoutPrefix = "fanout/"

// IsFanout reports the id of a shared workflow.
func IsFanout(id string) bool { return strings.HasPrefix(id, fanoutPrefix) }

// FanoutID is the id of the workflow that makes these first attempts: the same
// deliveries have the same one.
func FanoutID(deliveries []webhook.Start) string {
	sum := sha256.New()
	for i := range deliveries {
		_, _ = sum.Write(deliveries[i].DeliveryID[:]) // never fails
		if at := deliveries[i].Resume; at != nil {    // released at another time, it is another workflow
			_, _ = fmt.Fprintf(sum, "%d.%d", at.Run, at.Seq)
		}
	}
	return fanoutPrefix + deliveries[0].EventID.String() + "/" + hex.EncodeToString(sum.Sum(nil)[:8])
}

// GatheringID is the id of a shared workflow that is chosen before its deliveries are known: the first
// one's event, and a text that no other has.
func GatheringID(first webhook.EventID, unique string) string {
	return fanoutPrefix + first.String() + "/" + unique
}

// successorPart is in the id of a shared workflow that continues deliveries of another one.
const successorPart = "/again/"

// FanoutSuccessorID is the id of the shared workflow that continues deliveries of another one:
// the same each time for the same deliveries.
func FanoutSuccessorID(from string, deliveries []webhook.DeliveryID) string {
	sum := sha256.New()
	_, _ = sum.Write([]byte(from)) // never fails
	for i := range deliveries {
		_, _ = sum.Write(deliveries[i][:])
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(from, fanoutPrefix), "/")
	return fanoutPrefix + first + successorPart + hex.EncodeToString(sum.Sum(nil)[:8])
}

// IsSuccessor reports an id made by FanoutSuccessorID.
func IsSuccessor(id string) bool { return strings.Contains(id, successorPart) }

// FanoutOf is the input of the workflow that makes these first attempts.
func FanoutOf(deliveries []webhook.Start) FanoutInput {
	in := FanoutInput{Deliveries: make([]FanoutDelivery, len(deliveries))}
	for i, d := range deliveries {
		in.Deliveries[i] = FanoutDelivery{Ref: d.Ref, GiveUpAt: d.GiveUpAt, Progress: d.Resume, Trace: d.Trace}
	}
	return in
}

// DeliveriesOf are the deliveries with which a shared workflow with this input began. The converter is that of the client.
func DeliveriesOf(with converter.DataConverter, input *commonpb.Payloads) ([]webhook.DeliveryID, error) {
	var in FanoutInput
	if err := with.FromPayloads(input, &in); err != nil {
		return nil, fmt.Errorf("read the input of a shared workflow: %w", err)
	}
	all := make([]webhook.DeliveryID, 0, len(in.Deliveries)+len(in.Members))
	for i := range in.Deliveries {
		all = append(all, in.Deliveries[i].DeliveryID)
	}
	for _, m := range in.Members {
		all = append(all, m.DeliveryID)
	}
	return all, nil
}

// MaxEventIDs is how many ids go into one search attribute, unless Temporal is configured
// otherwise: it takes values of up to 2,048 bytes by default, which is 62.
const MaxEventIDs = 60

// EventIDBytes is what an id takes in a search attribute, with quotes and a comma.
const EventIDBytes = 33

// FanoutAttributes are a shared workflow's search attributes: the first maxEventIDs events, and what
// all deliveries have in common.
func FanoutAttributes(deliveries []webhook.Start, maxEventIDs int) temporal.SearchAttributes {
	var (
		first  = deliveries[0].Ref
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
func common(deliveries []webhook.Start) (tenant, endpoint, eventType bool) {
	tenant, endpoint, eventType = true, true, true
	first := &deliveries[0]
	for i := range deliveries {
		tenant = tenant && deliveries[i].TenantID == first.TenantID
		endpoint = endpoint && deliveries[i].EndpointID == first.EndpointID
		eventType = eventType && deliveries[i].EventType == first.EventType
	}
	return tenant, endpoint, eventType
}

// FanoutSummary is one line for the Web UI: how many deliveries the workflow has, and what they have in common.
func FanoutSummary(starts []webhook.Start) string {
	text := deliveries(len(starts))
	_, sameEndpoint, sameType := common(starts)
	if sameType {
		text += " of " + starts[0].EventType
	}
	if sameEndpoint {
		text += " to " + starts[0].EndpointID.String()
	}
	return text
}

// HandOverInput returns the input of the own workflow of a delivery that leaves a shared one.
func HandOverInput(s DeliveryState) DeliveryInput {
	return DeliveryInput{DeliveryState: s, HandedOver: true}
}

// DeadLetterAttributes are the search attributes of a workflow that begins as a dead letter.
func DeadLetterAttributes(ref webhook.Ref) temporal.SearchAttributes {
	return temporal.NewSearchAttributes(SearchAttributes(ref).Copy(),
		temporal.NewSearchAttributeKeyKeyword(AttributeDeliveryState).ValueSet(webhook.StateDeadLettered.String()))
}

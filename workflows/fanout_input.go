package workflows

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/everpost/everpost/internal/webhook"
)

// IsFanout reports the id of a shared workflow.
func IsFanout(id string) bool { return strings.HasPrefix(id, webhook.SharedWorkflowPrefix) }

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
	first, _, _ := strings.Cut(strings.TrimPrefix(from, webhook.SharedWorkflowPrefix), "/")
	return webhook.SharedWorkflowPrefix + first + successorPart + hex.EncodeToString(sum.Sum(nil)[:8])
}

// IsSuccessor reports an id made by FanoutSuccessorID.
func IsSuccessor(id string) bool { return strings.Contains(id, successorPart) }

// FanoutOf is the input of the workflow that makes these first attempts.
func FanoutOf(deliveries []webhook.Start) FanoutInput {
	in := FanoutInput{Deliveries: make([]FanoutDelivery, len(deliveries))}
	for i, d := range deliveries {
		in.Deliveries[i] = FanoutDelivery{Ref: d.Ref, Progress: d.Progress(), Trace: d.Trace}
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

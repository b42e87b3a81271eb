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

// IsShared reports the id of a workflow of several open deliveries.
func IsShared(id string) bool { return strings.HasPrefix(id, webhook.SharedWorkflowPrefix) }

// successorPart is in the id of a shared workflow that continues deliveries of another one.
const successorPart = "/again/"

// SuccessorID is the id of the shared workflow that continues deliveries of another one:
// the same each time for the same deliveries.
func SuccessorID(from string, deliveries []webhook.DeliveryID) string {
	sum := sha256.New()
	_, _ = sum.Write([]byte(from)) // never fails
	for i := range deliveries {
		_, _ = sum.Write(deliveries[i][:])
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(from, webhook.SharedWorkflowPrefix), "/")
	return webhook.SharedWorkflowPrefix + first + successorPart + hex.EncodeToString(sum.Sum(nil)[:8])
}

// IsSuccessor reports an id made by SuccessorID.
func IsSuccessor(id string) bool { return strings.Contains(id, successorPart) }

// InputOf is the input of the workflow that makes the first attempts of these runs.
func InputOf(starts ...webhook.Start) DeliveryInput {
	in := DeliveryInput{Members: make([]*Member, len(starts))}
	for i := range starts {
		s := &starts[i]
		in.Members[i] = &Member{
			DeliveryState: DeliveryState{
				Ref: s.Ref, Progress: s.Progress(), Trace: s.Trace,
				Running: s.Recorded, // if it has a claim and no attempt; the workflow finds out
			},
			NotBefore: s.NotBefore,
		}
	}
	return in
}

// DeliveriesOf are the deliveries with which a DeliveryWorkflow with this input began. The converter is that of the client.
func DeliveriesOf(with converter.DataConverter, input *commonpb.Payloads) ([]webhook.DeliveryID, error) {
	var in DeliveryInput
	if err := with.FromPayloads(input, &in); err != nil {
		return nil, fmt.Errorf("read the input of a shared workflow: %w", err)
	}
	all := make([]webhook.DeliveryID, 0, len(in.Members))
	for _, m := range in.Members {
		if m != nil {
			all = append(all, m.DeliveryID)
		}
	}
	return all, nil
}

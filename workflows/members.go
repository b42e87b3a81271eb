package workflows

import (
	"fmt"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

// What workflows of several deliveries have in common.

// leftMember is a delivery that has ended in a workflow of several, or left it.
type leftMember struct {
	webhook.Ref

	words string // what became of it
}

// memberList describes the deliveries of a workflow, in markdown: first those that are still here, a line each, then the others, with
// how many there were in earlier runs.
func memberList(here []string, left []leftMember, before int) string {
	head := "**" + deliveries(before+len(left)+len(here)) + "**"
	if len(here) > 0 {
		head += fmt.Sprintf(", %d of them still here", len(here))
	}
	lines := make([]string, 0, len(here)+len(left)+2)
	lines = append(append(lines, head+"\n\n"), here...)
	for i := range left {
		lines = append(lines, memberLine(left[i].Ref, left[i].words))
	}
	if before > 0 {
		lines = append(lines, "- in earlier runs of this workflow: "+deliveries(before)+"\n")
	}
	return strings.Join(lines, "")
}

func memberLine(ref webhook.Ref, words string) string {
	return "- `" + ref.DeliveryID.String() + "` · `" + ref.EventType + "` to `" + ref.EndpointID.String() + "`: " + plain(words) + "\n"
}

// deliveries is a number of them in words.
func deliveries(n int) string {
	if n == 1 {
		return "1 delivery"
	}
	return fmt.Sprintf("%d deliveries", n)
}

// tenantOf is the tenant of all members; "" if there are several.
func tenantOf[M interface{ tenant() string }](members []M) string {
	tenant := ""
	for i, m := range members {
		if i > 0 && m.tenant() != tenant {
			return ""
		}
		tenant = m.tenant()
	}
	return tenant
}

package api

import (
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

func showRetention(r webhook.Retention) client.Retention {
	show := func(d time.Duration) *string {
		if d == 0 {
			return nil
		}
		return new(retry.FormatDuration(d))
	}
	return client.Retention{Payloads: show(r.Payloads), Attempts: show(r.Attempts), Deliveries: show(r.Deliveries)}
}

// readRetention reads a new retention of a tenant, each part on its own: an absent one is unchanged, null sets the
// installation's, which is also the longest.
func readRetention(d *jsonDecoder, r webhook.Retention, longest time.Duration) webhook.Retention {
	d.object(func(name []byte) {
		switch string(name) {
		case "payloads":
			set(d, &r.Payloads, 0, readKept(webhook.MinRetention, longest))
		case "attempts":
			set(d, &r.Attempts, 0, readKept(webhook.MinRetention, longest))
		case "deliveries":
			set(d, &r.Deliveries, 0, readKept(min(webhook.MinDeliveryRetention, longest), longest))
		default:
			d.unknown()
		}
	})
	return r
}

// readKept reads how long something is kept.
func readKept(low, high time.Duration) func(*jsonDecoder) time.Duration {
	return func(d *jsonDecoder) time.Duration {
		text, ok := d.str()
		if !ok {
			return 0
		}
		kept, ok := within(text, low, high)
		if !ok {
			d.note(`must be a duration from "` + retry.FormatDuration(low) + `" to "` + retry.FormatDuration(high) +
				`": the installation keeps nothing for longer, because it removes whole days`)
		}
		return kept
	}
}

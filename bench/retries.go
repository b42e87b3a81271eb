package main

import (
	"context"
	"time"
)

// retries measures deliveries whose first attempt gets 503 and whose second, a second
// later, gets 200: with the circuit breaker off, and with it on.
func retries(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for _, breaker := range []bool{false, true} {
		one, err := b.alone(ctx, b.retriesWork(breaker))
		rows = append(rows, one...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func (b *bench) retriesWork(breaker bool) work {
	w := work{
		name: "retries", events: b.size.retried, endpoints: 1, connections: 64, batch: 1, fails: 1,
		about: "every first attempt is answered 503, the second comes after 1 s, circuit breaker off",
		settings: map[string]any{
			"retry_policy":    map[string]any{"strategy": "fixed", "base": "1s", "jitter": "none"},
			"circuit_breaker": map[string]any{"enabled": breaker},
		},
	}
	if breaker { // the breaker defers most deliveries, so there are fewer, and some may not arrive
		w.name, w.events, w.patience = "retries-breaker", b.size.broken, 5*time.Minute
		w.about = "every first attempt is answered 503, the second comes after 1 s, circuit breaker on"
	}
	return w
}

package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// Attempts reads a delivery's attempts, newest first, from below afterNumber
// (0: from the newest). A delivery without one has an empty list.
func (s *Deliveries) Attempts(ctx context.Context, tenantID string, id webhook.DeliveryID, limit, afterNumber int) ([]webhook.Attempt, error) {
	if _, err := s.Delivery(ctx, tenantID, id); err != nil {
		return nil, err
	}
	return queryAll(ctx, s.ofTenant(tenantID), "read attempts", scanAttempt, `
		select number, run, started_at, latency_us, decision, reason, status, retry_after_ns, error, delay_ns, delay_source, nominal_ns, truncated,
			request_headers, response_headers, response_body
		from attempts where delivery_id = $1 and ($2 = 0 or number < $2) order by number desc limit $3`, id, afterNumber, limit)
}

func scanAttempt(row pgx.CollectableRow) (webhook.Attempt, error) {
	var (
		a                                     webhook.Attempt
		latency, retryAfter, delay, nominal   int64
		decision                              int16
		reason                                string
		requestHeaders, responseHeaders, body []byte
	)
	err := row.Scan(&a.Number, &a.Run, &a.StartedAt, &latency, &decision, &reason, &a.Outcome.Status, &retryAfter, &a.Error, &delay, &a.DelaySource,
		&nominal, &a.Truncated, &requestHeaders, &responseHeaders, &body)
	if err != nil {
		return a, err
	}
	a.StartedAt, a.Latency = a.StartedAt.UTC(), time.Duration(latency)*time.Microsecond
	a.Outcome.Decision, a.Outcome.Reason = retry.Decision(decision), retry.Reason(reason) //nolint:gosec // written by us from a Decision
	a.Outcome.RetryAfter, a.Delay, a.Nominal = time.Duration(retryAfter), time.Duration(delay), time.Duration(nominal)
	a.ResponseBody = bytes.Clone(body)
	if err := json.Unmarshal(requestHeaders, &a.RequestHeaders); err != nil {
		return a, err
	}
	return a, json.Unmarshal(responseHeaders, &a.ResponseHeaders)
}

type attemptColumns struct {
	deliveries                                    [][16]byte
	runs, numbers, statuses                       []int
	started                                       []time.Time
	latencies, retryAfters, delays, nominals      []int64
	decisions                                     []int16
	reasons, errs, sources                        []string
	truncated                                     []bool
	requestHeaders, responseHeaders, responseBody [][]byte
}

func (c *attemptColumns) add(id webhook.DeliveryID, a *webhook.Attempt) {
	c.deliveries = append(c.deliveries, id)
	c.runs = append(c.runs, a.Run)
	c.numbers = append(c.numbers, a.Number)
	c.started = append(c.started, a.StartedAt)
	c.latencies = append(c.latencies, a.Latency.Microseconds())
	c.decisions = append(c.decisions, int16(a.Outcome.Decision))
	c.reasons = append(c.reasons, string(a.Outcome.Reason))
	c.statuses = append(c.statuses, a.Outcome.Status)
	c.retryAfters = append(c.retryAfters, int64(a.Outcome.RetryAfter))
	c.errs = append(c.errs, a.Error)
	c.delays = append(c.delays, int64(a.Delay))
	c.sources = append(c.sources, a.DelaySource)
	c.nominals = append(c.nominals, int64(a.Nominal))
	c.truncated = append(c.truncated, a.Truncated)
	c.requestHeaders = append(c.requestHeaders, headerJSON(a.RequestHeaders, appendText))
	c.responseHeaders = append(c.responseHeaders, headerJSON(a.ResponseHeaders, appendTexts))
	c.responseBody = append(c.responseBody, nonNil(a.ResponseBody))
}

func (c *attemptColumns) queue(b *pgx.Batch) {
	if len(c.deliveries) == 0 {
		return
	}
	b.Queue(insertAttempts, c.args()...)
}

//nolint:gochecknoglobals // a constant that Go cannot write as one
var insertAttempts = `
	insert into attempts (delivery_id, run, number, started_at, latency_us, decision, reason, status, retry_after_ns, error,
		delay_ns, delay_source, nominal_ns, truncated, request_headers, response_headers, response_body) ` + selectRows(1,
	"delivery uuid", "run int", "number int", "started timestamptz", "latency bigint", "decision smallint", "reason text", "status int",
	"retry_after bigint", "error text", "delay bigint", "source text", "nominal bigint", "truncated boolean",
	"request bytea", "response bytea", "body bytea") + `
	on conflict (delivery_id, run, number) do nothing`

func (c *attemptColumns) args() []any {
	return []any{
		c.deliveries, once(c.runs), once(c.numbers), once(c.started), once(c.latencies), once(c.decisions), once(c.reasons), once(c.statuses),
		once(c.retryAfters), once(c.errs), once(c.delays), once(c.sources), once(c.nominals), once(c.truncated),
		onceBytes(c.requestHeaders), onceBytes(c.responseHeaders), onceBytes(c.responseBody),
	}
}

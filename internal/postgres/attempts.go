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
func (s *Store) Attempts(ctx context.Context, tenantID string, id webhook.DeliveryID, limit, afterNumber int) ([]webhook.Attempt, error) {
	if _, err := s.Delivery(ctx, tenantID, id); err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, `
		select number, run, started_at, latency_us, decision, reason, status, retry_after_ns, error, delay_ns, delay_source, nominal_ns, truncated,
			request_headers, response_headers, response_body
		from attempts where delivery_id = $1 and ($2 = 0 or number < $2) order by number desc limit $3`, id, afterNumber, limit)
	if err != nil {
		return nil, translate("read attempts", err)
	}
	found, err := pgx.CollectRows(rows, scanAttempt)
	if err != nil {
		return nil, translate("read attempts", err)
	}
	return found, nil
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

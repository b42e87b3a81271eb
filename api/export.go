package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	contentNDJSON = "application/x-ndjson"

	maxExports     = 4        // at a time in a process, and one of a tenant; one of them only for an operator
	exportPage     = 100      // rows of one read
	exportLarge    = 25       // rows of one read of endpoints and of attempts, which may have 40 KiB and more
	exportPayloads = 1 << 20  // bytes of the payloads and headers of one read, unless a single event has more
	exportBuffer   = 64 << 10 // bytes that are sent together

	exportRetryAfter = 30 * time.Second

	// A read that the store refuses for the moment is repeated so often: an export outlasts a short
	// outage, and the tenant's own lists, which have a limit at a time.
	exportTries = 10
)

// Exports reads what only an export needs.
type Exports interface {
	// BeginExport writes the export to the audit log and returns the tenant. CodeNotFound: no such tenant.
	BeginExport(ctx context.Context, by webhook.Actor, tenantID string) (webhook.Tenant, error)
	// Contents returns the payloads and headers of those of a tenant's events that still have them, in one read.
	Contents(ctx context.Context, tenantID string, ids []webhook.EventID) (map[webhook.EventID]webhook.Content, error)
	// AttemptsOf returns attempts of several deliveries: those after a position, or the first ones if that is
	// zero. They are in the order of their deliveries' ids, runs and numbers.
	AttemptsOf(ctx context.Context, tenantID string, ids []webhook.DeliveryID, limit int, after webhook.DeliveryAttempt) ([]webhook.DeliveryAttempt, error)
}

// exportsUnderWay are the tenants whose exports are under way.
type exportsUnderWay struct {
	mu      sync.Mutex
	running map[string]bool
}

// begin returns CodeRateLimited if the tenant has an export, or the process too many for a caller with this scope.
func (e *exportsUnderWay) begin(tenant string, scope webhook.Scope) (end func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	most := maxExports
	if scope != webhook.ScopeOperator {
		most--
	}
	why := ""
	switch {
	case e.running[tenant]:
		why = "an export of this tenant is under way"
	case len(e.running) >= most:
		why = fmt.Sprintf("%d exports are under way", len(e.running))
	}
	if why != "" {
		return nil, &webhook.Error{Code: webhook.CodeRateLimited, RetryAfter: exportRetryAfter, Message: why}
	}
	if e.running == nil {
		e.running = map[string]bool{}
	}
	e.running[tenant] = true
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.running, tenant)
	}, nil
}

// exportHandler exports tenants.
type exportHandler struct {
	exports    Exports
	endpoints  Endpoints
	keys       Keys
	events     Events
	deliveries Deliveries
	replays    Replays
	audit      Audit

	views        *deliveryViews
	workflowURLs *workflowURLs
	now          func() time.Time
	log          *slog.Logger
	underWay     exportsUnderWay
}

// export streams everything that is stored of a tenant, an object per line. After an error in the
// middle it aborts the connection, and the last line is missing.
func (h *exportHandler) export(c call) error {
	end, err := h.underWay.begin(c.tenant, c.key.Scope)
	if err != nil {
		return err
	}
	defer end()
	if err := c.answer.reserve(maxPageBytes); err != nil { // what it has read, and writes
		return err
	}
	to := newPacedWriter(c.Response())
	x := &export{
		call: c, of: h, ctx: c.Request().Context(), until: h.now(), counts: map[string]int{}, out: bufio.NewWriterSize(to, exportBuffer), to: to,
	}
	t, err := h.exports.BeginExport(x.ctx, c.actor(), c.tenant)
	if err != nil {
		return err
	}
	c.Response().Header().Set("Content-Type", contentNDJSON)
	c.Response().WriteHeader(http.StatusOK)
	if err := x.all(t); err != nil {
		h.log.LogAttrs(x.ctx, slog.LevelWarn, "an export was not completed",
			slog.String("request_id", requestID(c)), slog.String("tenant_id", c.tenant), slog.Any("error", err))
		panic(http.ErrAbortHandler)
	}
	return nil
}

// export is one export. Rows that are stored after its beginning are not part of it.
type export struct {
	call

	of     *exportHandler
	ctx    context.Context //nolint:containedctx // the request's
	until  time.Time
	out    *bufio.Writer
	to     *pacedWriter
	counts map[string]int
}

func (x *export) all(t webhook.Tenant) error {
	if err := x.line("tenant", showTenant(t)); err != nil {
		return err
	}
	if err := x.flush(); err != nil { // so that the client sees that it has begun
		return err
	}
	for _, part := range []func() error{x.endpoints, x.keys, x.events, x.deliveries, x.replays, x.audit} {
		if err := part(); err != nil {
			return err
		}
	}
	if err := x.line("end", x.counts); err != nil {
		return err
	}
	return x.flush()
}

func (x *export) endpoints() error {
	return pages(x, exportLarge, func(p webhook.Page) ([]webhook.Endpoint, error) {
		return x.of.endpoints.ListEndpoints(x.ctx, x.tenant, p)
	}, func(e webhook.Endpoint) [16]byte { return e.ID }, linesOf(x, "endpoint", showEndpoint))
}

func (x *export) keys() error {
	return pages(x, exportPage, func(p webhook.Page) ([]webhook.Key, error) {
		return x.of.keys.ListKeys(x.ctx, x.tenant, p)
	}, func(k webhook.Key) [16]byte { return k.ID }, linesOf(x, "key", showKey))
}

func (x *export) events() error {
	return pages(x, exportPage, func(p webhook.Page) ([]webhook.Event, error) {
		found, _, err := x.of.events.ListEvents(x.ctx, x.tenant, webhook.EventFilter{Until: x.until}, p)
		return found, err
	}, func(e webhook.Event) [16]byte { return e.ID }, x.withContents)
}

// withContents writes a page of events. It reads as many payloads at a time, with the headers, as fit into exportPayloads.
func (x *export) withContents(page []webhook.Event) error {
	for len(page) > 0 {
		n, size := 0, 0
		var ids []webhook.EventID
		for ; n < len(page); n++ {
			if !page[n].Removed.IsZero() {
				continue
			}
			of := page[n].PayloadSize + page[n].HeaderSize
			if n > 0 && size+of > exportPayloads {
				break
			}
			ids, size = append(ids, page[n].ID), size+of
		}
		if err := x.eventLines(page[:n], ids); err != nil {
			return err
		}
		page = page[n:]
	}
	return nil
}

func (x *export) eventLines(events []webhook.Event, ids []webhook.EventID) error {
	var contents map[webhook.EventID]webhook.Content
	err := x.retried(func() (err error) {
		contents, err = x.of.exports.Contents(x.ctx, x.tenant, ids)
		return err
	})
	if err != nil {
		return err
	}
	for _, e := range events {
		content, found := contents[e.ID]
		if !found && e.Removed.IsZero() { // removed since the page was read
			e, _, err = x.of.events.Event(x.ctx, x.tenant, e.ID)
			if webhook.CodeOf(err) == webhook.CodeNotFound {
				continue
			}
			if err != nil {
				return err
			}
		}
		e.Headers = content.Headers
		if err := x.line("event", client.ExportedEvent{Event: showEvent(e), Payload: content.Payload}); err != nil {
			return fmt.Errorf("event %s: %w", e.ID, err)
		}
	}
	return nil
}

func (x *export) deliveries() error {
	return pages(x, exportPage, func(p webhook.Page) ([]webhook.Delivery, error) {
		found, _, err := x.of.deliveries.ListDeliveries(x.ctx, x.tenant, webhook.DeliveryFilter{Until: x.until}, p)
		return found, err
	}, func(d webhook.Delivery) [16]byte { return d.DeliveryID }, func(page []webhook.Delivery) error {
		var externalIDs map[webhook.EventID]string
		if err := x.retried(func() (err error) {
			externalIDs, err = x.of.views.externalIDs(x.ctx, x.tenant, page...)
			return err
		}); err != nil {
			return err
		}
		if err := linesOf(x, "delivery", x.of.views.page(x.call, page, externalIDs))(page); err != nil {
			return err
		}
		return x.attempts(page)
	})
}

// attempts writes the attempts of a page of deliveries.
func (x *export) attempts(of []webhook.Delivery) error {
	ids := make([]webhook.DeliveryID, 0, len(of))
	for _, d := range of {
		ids = append(ids, d.DeliveryID)
	}
	var page []webhook.DeliveryAttempt
	for after := (webhook.DeliveryAttempt{}); ; after = page[len(page)-1] {
		err := x.retried(func() (err error) {
			page, err = x.of.exports.AttemptsOf(x.ctx, x.tenant, ids, exportLarge, after)
			return err
		})
		if err != nil {
			return err
		}
		for _, a := range page {
			if err := x.line("attempt", client.DeliveryAttempt{Attempt: showAttempt(a.Attempt), DeliveryID: a.DeliveryID.String()}); err != nil {
				return err
			}
		}
		if len(page) < exportLarge {
			return nil
		}
	}
}

func (x *export) replays() error {
	show := func(r webhook.Replay) client.Replay { return showReplay(x.call, x.of.workflowURLs, r) }
	return pages(x, exportPage, func(p webhook.Page) ([]webhook.Replay, error) {
		return x.of.replays.ListReplays(x.ctx, x.tenant, p)
	}, func(r webhook.Replay) [16]byte { return r.ID }, linesOf(x, "replay", show))
}

// audit writes the entries of the audit log. A tenant's key does not get the addresses in it, nor the ids and names of operators'
// keys: operators make entries, too.
func (x *export) audit() error {
	show := func(e webhook.AuditEntry) client.AuditEntry {
		view := showAudit(e)
		if x.key.Scope != webhook.ScopeOperator {
			view.SourceAddress = nil
			if !e.By.KeyID.IsZero() && !e.ByTenant {
				view.KeyID, view.Actor = nil, nil
			}
		}
		return view
	}
	return pages(x, exportPage, func(p webhook.Page) ([]webhook.AuditEntry, error) {
		return x.of.audit.ListAudit(x.ctx, webhook.AuditFilter{TenantID: x.tenant}, p)
	}, func(e webhook.AuditEntry) [16]byte { return e.ID }, linesOf(x, "audit", show))
}

// pages reads all pages of a list, newest first, and writes them.
func pages[T any](x *export, rows int, read func(webhook.Page) ([]T, error), id func(T) [16]byte, write func([]T) error) error {
	for p := (webhook.Page{Limit: rows}); ; {
		var page []T
		err := x.retried(func() (err error) {
			page, err = read(p)
			return err
		})
		if err != nil {
			return err
		}
		if err := write(page); err != nil {
			return err
		}
		if len(page) < rows {
			return nil
		}
		p.After = id(page[len(page)-1])
	}
}

func linesOf[T, V any](x *export, kind string, show func(T) V) func([]T) error {
	return func(page []T) error {
		for _, entry := range page {
			if err := x.line(kind, show(entry)); err != nil {
				return err
			}
		}
		return nil
	}
}

// retried repeats a read that the store refuses for the moment.
func (x *export) retried(read func() error) error {
	for try := 1; ; try++ {
		err := read()
		refused, ok := errors.AsType[*webhook.Error](err)
		if !ok || try == exportTries || refused.Code != webhook.CodeRateLimited && refused.Code != webhook.CodeUnavailable {
			return err
		}
		pause := time.NewTimer(refused.RetryAfter)
		select {
		case <-pause.C:
		case <-x.ctx.Done():
			pause.Stop()
			return x.ctx.Err()
		}
	}
}

func (x *export) line(kind string, data any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(client.ExportLine[any]{Kind: kind, Data: data}); err != nil {
		return fmt.Errorf("encode a line of the kind %s: %w", kind, err)
	}
	if x.out.Available() < b.Len() {
		if err := x.flush(); err != nil {
			return err
		}
	}
	x.counts[kind]++
	_, err := x.out.Write(b.Bytes())
	return err //nolint:wrapcheck // the client went away
}

// flush sends what is buffered.
func (x *export) flush() error {
	if err := x.out.Flush(); err != nil {
		return err //nolint:wrapcheck // the client went away
	}
	if err := x.to.flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return x.ctx.Err()
}

package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

// route is a page or a form's target. Patterns are those of http.ServeMux, below /console or /portal; {tenant} is
// the tenant that the page shows.
type route struct {
	pattern string
	access  access
	handle  func(*page) error
	big     bool // the form may be large: it has a payload
	slow    bool // the answer waits for a receiver
}

// serve returns the handler of a route: it finds the session, checks that it may open the page and that
// a form comes from a page of ours, and turns a handler's error into a page.
func (s *Console) serve(r route) http.Handler {
	limit := pageTime
	if r.slow {
		limit = testTime
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Accept") == eventStream {
			s.stream(w, req, r)
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), limit)
		defer cancel()
		p := s.newPage(w, req.WithContext(ctx))
		if err := p.run(r); err != nil { //nolint:contextcheck // as below
			p.fail(err) //nolint:contextcheck // the page's request has the context
		}
	})
}

// run runs a route's handler if the request may have it. Nothing of a form is read for a request that may not, and
// the form is read before there is a place for the page: a slow sender holds none.
func (p *page) run(r route) error {
	post := p.r.Method == http.MethodPost
	if post && p.console.forms.Check(p.r) != nil {
		return refusal(http.StatusForbidden, "the form was not sent from a page of this console")
	}
	if r.access != public {
		if err := p.signIn(); err != nil {
			return err
		}
		if !p.session.signedIn() {
			return p.askToLogIn()
		}
		foreign := p.tenant != "" && (p.session.TenantID != "" && p.session.TenantID != p.tenant || !webhook.ValidTenantID(p.tenant))
		if foreign || !r.access.sees(p.session) {
			return errNotFound() // as for a page that does not exist
		}
	}
	if r.slow || r.big {
		leave, err := p.enter(p.console.slow)
		if err != nil {
			return err
		}
		defer leave()
	}
	if post {
		if err := p.readForm(r); err != nil {
			return err
		}
	}
	if r.slow { // it only waits, for longer than the server's usual deadlines
		deadline := time.Now().Add(testTime)
		control := http.NewResponseController(p.w) // errors: there is no connection, as in tests
		_ = control.SetReadDeadline(deadline)
		_ = control.SetWriteDeadline(deadline.Add(busyWait))
	} else {
		leave, err := p.enterPages()
		if err != nil {
			return err
		}
		p.leave = leave
		defer leave()
	}
	return r.handle(p)
}

// enterPages waits for the place in which a page is made. After a look at a live page the next one waits for a while, so
// that deliveries have the processors.
func (p *page) enterPages() (leave func(), err error) {
	if p.live == nil {
		return p.enter(p.console.pages)
	}
	free, err := p.enter(p.console.looks)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	return func() { time.AfterFunc(min(liveRest*time.Since(began), liveEvery), free) }, nil
}

// readForm reads the body of a form within its bound, and checks that a form of ours was sent.
func (p *page) readForm(r route) error {
	limit := int64(maxPublic)
	if r.access != public {
		limit = maxForm
		done, err := p.enter(p.console.transfers)
		if err != nil {
			return err
		}
		defer done()
	}
	if r.big {
		limit = maxBigForm
	}
	p.r.Body = http.MaxBytesReader(p.w, p.r.Body, limit)
	if err := p.r.ParseForm(); err != nil {
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			return refusal(http.StatusRequestEntityTooLarge, "the form is too large")
		}
		return refusal(http.StatusBadRequest, "the form cannot be read")
	}
	p.typed = p.r.PostForm //nolint:forbidigo // a field, not a request of our own
	if r.access != public && !tokenFits(p.typed, p.session.token) {
		const old = "the form is too old, or was not sent from a page of this console; load the page again and repeat it"
		return refusal(http.StatusForbidden, old)
	}
	return nil
}

// fail shows an error as a page.
func (p *page) fail(err error) {
	shown := problemOf(err)
	switch {
	case shown.Status == http.StatusUnauthorized && p.live == nil && p.portal != nil:
		if failed := p.portal.showEnded(); failed != nil {
			http.Error(p.w, "the page could not be made", http.StatusInternalServerError)
		}
		return
	case shown.Status == http.StatusUnauthorized && p.live == nil: // the key was revoked a moment ago
		p.redirect(Root + "/login?" + url.Values{"to": {localPath(p.here())}}.Encode())
		return
	case shown.Status >= http.StatusInternalServerError:
		p.console.config.Logger.LogAttrs(p.r.Context(), slog.LevelWarn, "a page of the console could not be made",
			slog.String("route", p.r.Pattern), slog.Any("error", err))
	}
	if p.portal != nil {
		if failed := p.portal.showError(shown); failed != nil {
			http.Error(p.w, "the page could not be made", http.StatusInternalServerError)
		}
		return
	}
	if failed := p.show(view{Template: "error", Title: titleOf(shown.Status), Status: shown.Status, Data: shown}); failed != nil {
		http.Error(p.w, "the page could not be made", http.StatusInternalServerError)
	}
}

func titleOf(status int) string {
	switch status {
	case http.StatusNotFound:
		return "Not found"
	case http.StatusForbidden:
		return "Not allowed"
	case http.StatusConflict:
		return "Not possible now"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return "Try again in a moment"
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return "The request is not valid"
	}
	return "Something went wrong"
}

// stream answers a script that follows a page. Each look finds the session again, so that a stream ends
// with its session.
func (s *Console) stream(w http.ResponseWriter, r *http.Request, of route) {
	p := s.newPage(w, r)
	if err := p.signIn(); err != nil || !p.session.signedIn() || r.Method != http.MethodGet || of.access == public {
		w.WriteHeader(http.StatusNoContent) // the browser does not try again
		return
	}
	leave, free := s.streams.enter(r.Context(), p.session)
	if !free {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("X-Accel-Buffering", "no") // nginx: pass it on at once
	// The server's deadline for reading a request would end the stream. An error: there is no connection, as in tests.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	live := &stream{w: w}
	end := time.NewTimer(liveLife)
	defer end.Stop()
	tick := time.NewTimer(liveEvery)
	defer tick.Stop()
	for live.beat() {
		select {
		case <-end.C:
			return
		case <-s.streams.done:
			return
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
		s.look(live, r, of)
		if live.over {
			live.write("event: end\ndata:\n\n") // else the browser would come again
			return
		}
		tick.Reset(liveEvery)
	}
}

// look makes the page once more and sends its live part if it has changed.
func (s *Console) look(live *stream, r *http.Request, of route) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTime)
	defer cancel()
	p := s.newPage(&answer{header: http.Header{}}, r.WithContext(ctx))
	p.live = live
	err := p.run(of) //nolint:contextcheck // the page's request has the context
	if err == nil {
		return
	}
	if known, ok := errors.AsType[*problem](err); ok && known.Status < http.StatusInternalServerError {
		live.over = true // gone, or not allowed any more; anything else may pass
	}
}

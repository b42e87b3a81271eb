package console

import (
	"net/http"
	"strings"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// readEndpoint reads the endpoint of the path and its health, for a question about it.
func readEndpoint(p *page) (e client.Endpoint, h client.EndpointHealth, err error) {
	id := p.r.PathValue("id")
	if err := p.get(&e, nil, "endpoints", id); err != nil {
		return e, h, err
	}
	err = p.get(&h, nil, "endpoints", id, "health")
	return e, h, err
}

// waitingWords is how many deliveries wait for an endpoint: "1 waiting delivery".
func waitingWords(h client.EndpointHealth) string {
	return moreThan(h.Waiting+h.Scheduled, h.Waiting >= webhook.MaxCounted, "waiting delivery")
}

// heldWords is how many deliveries are held for an endpoint.
func heldWords(h client.EndpointHealth) string {
	return moreThan(h.Held, h.Held >= webhook.MaxCounted, "held delivery")
}

// moreThan is a number with its noun, which may be more.
func moreThan(n int, more bool, noun string) string {
	if more {
		return "more than " + many(n, noun)
	}
	return many(n, noun)
}

func askPause(p *page) error {
	e, h, err := readEndpoint(p)
	if err != nil {
		return err
	}
	return p.ask("Pause the endpoint", "Endpoints", question{
		Question: "No more requests go to " + visible(nameOf(e)) + ".",
		Detail:   "It has " + waitingWords(h) + " now. What waits, and what is new, is held and sent after you resume it.",
		Button:   "Pause", Back: p.to("endpoints", e.ID), Danger: true, Reason: true,
	})
}

func pauseEndpoint(p *page) error {
	return commandEndpoint(p, "Pause the endpoint", "The endpoint is paused.", "pause")
}

// commandEndpoint sends a command to the endpoint of the path and goes back to it. A refusal is shown with the question.
func commandEndpoint(p *page, title, done, command string) error {
	id := p.r.PathValue("id")
	back := p.to("endpoints", id)
	var body any
	if p.typed.Get("why") != "" {
		body = reasonBody(p.typed)
	}
	err := p.send(nil, http.MethodPost, body, "endpoints", id, command)
	if isStatus(err, http.StatusConflict) || isStatus(err, http.StatusBadRequest) {
		return p.ask(title, "Endpoints", question{Question: "Nothing was changed.", Problem: sentence(problemOf(err).Detail), Button: "Try again", Back: back})
	}
	if err != nil {
		return err
	}
	return p.done(back, done)
}

// resumeView asks for the rate of the release.
type resumeView struct {
	Form form
	Name string
	Held string
	Back string
}

func showResume(p *page, f form) error {
	e, h, err := readEndpoint(p)
	if err != nil {
		return err
	}
	return p.show(view{
		Template: "resume", Title: "Resume the endpoint", Entry: "Endpoints", Status: f.status(),
		Data: resumeView{f, nameOf(e), heldWords(h), p.to("endpoints", e.ID)},
	})
}

func askResume(p *page) error { return showResume(p, resumeForm()) }

func resumeForm() form { return newForm("rate_per_minute", "", "reason", "") }

func resumeEndpoint(p *page) error {
	id := p.r.PathValue("id")
	body := map[string]any{}
	if rate := number(strings.TrimSpace(p.typed.Get("rate_per_minute"))); rate != nil {
		body["rate_per_minute"] = rate
	}
	if reason := strings.TrimSpace(p.typed.Get("reason")); reason != "" {
		body["reason"] = reason
	}
	var resumed client.ResumedEndpoint
	if err := p.create(&resumed, body, "endpoints", id, "resume"); err != nil {
		f, err := resumeForm().refused(p.typed, err)
		if err != nil {
			return err
		}
		return showResume(p, f)
	}
	done := "The endpoint is active."
	if resumed.Release.State == client.ReleaseRunning {
		done = "The endpoint is active. Its held deliveries are being released."
	}
	return p.done(p.to("endpoints", id), done)
}

func askCloseCircuit(p *page) error {
	e, h, err := readEndpoint(p)
	if err != nil {
		return err
	}
	return p.ask("Close the circuit", "Endpoints", question{
		Question: "The oldest delivery that waits is sent to " + visible(nameOf(e)) + " at once, as a probe. The endpoint has " + waitingWords(h) + ".",
		Detail:   "If it succeeds, the circuit closes and the rate rises step by step. If it fails, the circuit stays open.",
		Button:   "Try now", Back: p.to("endpoints", e.ID),
	})
}

func closeCircuit(p *page) error {
	return commandEndpoint(p, "Close the circuit", "A probe is being sent.", "close-circuit")
}

func askDeleteEndpoint(p *page) error {
	e, h, err := readEndpoint(p)
	if err != nil {
		return err
	}
	return p.ask("Delete the endpoint", "Endpoints", question{
		Question: "Delete " + visible(nameOf(e)) + " and cancel its open deliveries: " + waitingWords(h) + ", " + heldWords(h) + ".",
		Detail:   "This cannot be undone. Its dead letters stay readable, but cannot be replayed any more.",
		Button:   "Delete permanently", Back: p.to("endpoints", e.ID), Danger: true,
	})
}

func deleteEndpoint(p *page) error {
	if err := p.send(nil, http.MethodDelete, nil, "endpoints", p.r.PathValue("id")); err != nil {
		return err
	}
	return p.done(p.to("endpoints"), "The endpoint is deleted; its open deliveries are being cancelled.")
}

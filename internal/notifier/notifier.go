// Package notifier tells people of changes of endpoints: in the background it looks for what is to be told, and sends the mails that are due.
package notifier

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/everpost/everpost/internal/notify"
	"github.com/everpost/everpost/internal/webhook"
)

// How often and how much. One round of each costs, while nothing happens, one query of a small table.
const (
	// defaultEvery is the pause between two rounds that take changes, or mails.
	defaultEvery = 2 * time.Second
	// lookEvery is about how often endpoints are looked at, and pagesPerLook how many pages then. If there are more, the
	// next look goes on where this one ended.
	lookEvery    = 30 * time.Second
	pagesPerLook = 100
	// changesAtOnce, digestsAtOnce and mailsAtOnce bound one transaction.
	changesAtOnce = 100
	digestsAtOnce = 20
	mailsAtOnce   = 10
	// stopTime is how long a mail may take when the process ends.
	stopTime = 15 * time.Second
	// roundTime bounds one round but that of the mails.
	roundTime = 30 * time.Second
)

// Changes are what waits to be told in the database.
type Changes interface {
	Wanted(ctx context.Context) (bool, error)
	TakeChanges(ctx context.Context, limit int) (n int, err error)
	SendDigests(ctx context.Context, limit int) (n int, err error)
}

// Looks finds endpoints that may be ill.
type Looks interface {
	Look(ctx context.Context, after webhook.EndpointID) ([]webhook.EndpointFacts, webhook.EndpointID, error)
	Tell(ctx context.Context, all []webhook.Notification, id webhook.EndpointID, from, to webhook.EndpointTold) (bool, error)
}

// Mails are the mails that wait.
type Mails interface { //nolint:interfacebloat // what may become of a mail
	TakeMails(ctx context.Context, limit int, lease time.Duration) ([]webhook.DueMail, error)
	MailSent(ctx context.Context, m *webhook.DueMail) error
	MailReturned(ctx context.Context, m *webhook.DueMail, wait time.Duration) error
	MailRefused(ctx context.Context, m *webhook.DueMail, why string) error
	MailFailed(ctx context.Context, m *webhook.DueMail, why string, wait time.Duration) error
	MailGivenUp(ctx context.Context, m *webhook.DueMail, why string) error
}

// Sender sends mails: *mailer.Mailer. Its errors are *mailer.Error.
type Sender interface {
	Send(ctx context.Context, to, id string, text notify.Mail) error
}

// Metrics counts mails.
type Metrics interface {
	NotificationMail(result string)
}

// Config is what a Notifier needs. All fields are required unless they say otherwise.
type Config struct {
	Changes Changes
	Looks   Looks
	Mails   Mails
	Sender  Sender // nil: no mail is sent
	Links   notify.Links
	Explain func(ctx context.Context, tenantID string, id webhook.EndpointID) (string, error)
	Metrics Metrics
	Logger  *slog.Logger
	Now     func() time.Time // the database's clock
	// Every is the pause between two rounds. Defaults to 2 s; a look is made every fifteenth.
	Every time.Duration
}

// Notifier tells people of changes of endpoints, between Start and Stop.
type Notifier struct {
	c       Config
	after   webhook.EndpointID // the last look ended here; zero: at the end
	down    bool               // the mail server could not be used last; of the goroutine that sends mails
	running sync.WaitGroup
	end     context.CancelFunc
}

// New makes a Notifier that has not been started.
func New(c Config) *Notifier {
	if c.Every == 0 {
		c.Every = defaultEvery
	}
	return &Notifier{c: c}
}

// Start begins the work in the background, which ends with ctx or Stop.
func (n *Notifier) Start(ctx context.Context) {
	ctx, n.end = context.WithCancel(ctx)
	n.running.Go(func() { n.tell(ctx) })
	if n.c.Sender != nil {
		n.running.Go(func() { n.repeat(ctx, "mails", n.sendMails) })
	}
}

// Stop ends the work and waits for it, for stopTime at most: a mail that the server has not accepted by then is sent again by another process.
func (n *Notifier) Stop() {
	n.end()
	done := make(chan struct{})
	go func() {
		n.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stopTime):
	}
}

// tell looks for what is to be told, until ctx ends.
func (n *Notifier) tell(ctx context.Context) {
	round := 0
	n.repeat(ctx, "notifications", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, roundTime)
		defer cancel()
		defer func() { round++ }()
		if err := n.takeChanges(ctx); err != nil {
			return err
		}
		if round%int(lookEvery/defaultEvery) != 0 {
			return nil
		}
		wanted, err := n.c.Changes.Wanted(ctx)
		if err != nil || !wanted {
			return err
		}
		if err := n.sendDigests(ctx); err != nil {
			return err
		}
		return n.look(ctx)
	})
}

// repeat calls round again and again, until ctx ends. The first of several errors in a row is logged.
func (n *Notifier) repeat(ctx context.Context, what string, round func(context.Context) error) {
	tick := time.Tick(n.c.Every)
	failed := false
	for {
		err := round(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			n.c.Logger.WarnContext(ctx, "a round of the notifications has failed; trying again", "of", what, "error", err)
		}
		failed = err != nil
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

// takeChanges tells of all changes that wait.
func (n *Notifier) takeChanges(ctx context.Context) error {
	for {
		taken, err := n.c.Changes.TakeChanges(ctx, changesAtOnce)
		if err != nil || taken < changesAtOnce {
			return err
		}
	}
}

// sendDigests makes all digests that are due.
func (n *Notifier) sendDigests(ctx context.Context) error {
	for {
		sent, err := n.c.Changes.SendDigests(ctx, digestsAtOnce)
		if err != nil || sent < digestsAtOnce {
			return err
		}
	}
}

// look looks at endpoints, page by page.
func (n *Notifier) look(ctx context.Context) (failed error) {
	for range pagesPerLook {
		found, next, err := n.c.Looks.Look(ctx, n.after)
		if err != nil {
			return err
		}
		for i := range found {
			if err := n.judge(ctx, &found[i]); err != nil { // the others are looked at all the same
				failed = err
			}
		}
		same := next == n.after // another process looks
		if n.after = next; next.IsZero() || same {
			return failed
		}
	}
	return failed
}

// judge tells what is to be told of one endpoint.
func (n *Notifier) judge(ctx context.Context, c *webhook.EndpointFacts) error {
	now := n.c.Now()
	findings, next := notify.Next(c, now)
	if next == c.Told {
		return nil
	}
	all := make([]webhook.Notification, len(findings))
	for i, f := range findings {
		summary := f.Why
		if f.Notice == webhook.NoticeFailing || f.Notice == webhook.NoticeDisablingSoon {
			explained, err := n.c.Explain(ctx, c.TenantID, c.ID)
			switch {
			case webhook.CodeOf(err) == webhook.CodeNotFound: // deleted meanwhile
				return nil
			case err != nil:
				return err
			}
			summary += " " + explained
		}
		all[i] = webhook.Notification{
			Notice: f.Notice, TenantID: c.TenantID, Endpoint: c.ID, URL: c.URL, About: c.Description, Summary: summary, At: now.UTC().Truncate(time.Second),
		}
	}
	_, err := n.c.Looks.Tell(ctx, all, c.ID, c.Told, next)
	return err
}

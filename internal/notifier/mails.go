package notifier

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"time"

	"github.com/everpost/everpost/internal/mailer"
	"github.com/everpost/everpost/internal/notify"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	// lease is how long the mails of a round are this process's: longer than sending all of them takes.
	lease = mailsAtOnce*mailer.Timeout + time.Minute
	// The pause after a failure doubles from firstPause to longestPause.
	firstPause, longestPause = time.Minute, time.Hour
	// giveUpAfter is how long a mail is tried.
	giveUpAfter = 3 * 24 * time.Hour
	// noteTime bounds the writing of what became of a mail.
	noteTime = 10 * time.Second
)

// Results of sending a mail, for the metrics.
const (
	resultSent    = "sent"
	resultRefused = "refused"  // for good: no other try
	resultFailed  = "failed"   // it is tried again
	resultGivenUp = "given_up" // it was tried for three days
)

// sendMails sends mails that are due, one after the other, until the server cannot be used. It gives back those that it did not try.
func (n *Notifier) sendMails(ctx context.Context) error {
	mails, err := n.c.Mails.TakeMails(ctx, mailsAtOnce, lease)
	if err != nil {
		return err
	}
	work := context.WithoutCancel(ctx) // of what is under way when the process ends
	var (
		down   *mailer.Error
		failed error
	)
	for i := range mails {
		m := &mails[i]
		if ctx.Err() != nil || down != nil || failed != nil {
			wait := time.Duration(0)
			if down != nil {
				wait = firstPause
			}
			failed = errors.Join(failed, n.note(work, func(ctx context.Context) error { return n.c.Mails.MailReturned(ctx, m, wait) }))
			continue
		}
		if down, failed = n.sendMail(work, m); failed == nil {
			n.report(ctx, down)
		}
	}
	return failed
}

// report logs that the mail server cannot be used, and that it can again, once each.
func (n *Notifier) report(ctx context.Context, down *mailer.Error) {
	switch {
	case down != nil && !n.down:
		n.c.Logger.WarnContext(ctx, "mails of notifications wait: the mail server cannot be used", "why", down.Why)
	case down == nil && n.down:
		n.c.Logger.InfoContext(ctx, "mails of notifications are sent again")
	}
	n.down = down != nil
}

// sendMail sends a mail and notes what became of it. It returns why the server cannot be used, if that is so; then the mail waits.
func (n *Notifier) sendMail(ctx context.Context, m *webhook.DueMail) (down *mailer.Error, err error) {
	text, err := n.compose(m)
	if err != nil {
		return nil, err
	}
	failed, ok := errors.AsType[*mailer.Error](n.c.Sender.Send(ctx, m.Address, hex.EncodeToString(m.ID[:]), text))
	if !ok {
		n.c.Metrics.NotificationMail(resultSent)
		return nil, n.note(ctx, func(ctx context.Context) error { return n.c.Mails.MailSent(ctx, m) })
	}
	if failed.Fate == mailer.Refused {
		n.c.Metrics.NotificationMail(resultRefused)
		return nil, n.note(ctx, func(ctx context.Context) error { return n.c.Mails.MailRefused(ctx, m, failed.Why) })
	}
	if err := n.postpone(ctx, m, failed.Why); err != nil {
		return nil, err
	}
	if failed.Fate == mailer.Unavailable {
		return failed, nil
	}
	return nil, nil //nolint:nilnil // the server can be used
}

// postpone lets a mail wait, or gives it up.
func (n *Notifier) postpone(ctx context.Context, m *webhook.DueMail, why string) error {
	if n.c.Now().Sub(m.CreatedAt) >= giveUpAfter {
		n.c.Metrics.NotificationMail(resultGivenUp)
		n.c.Logger.WarnContext(ctx, "a mail was given up: it could not be sent for three days", "channel", m.Channel.String(), "why", why)
		return n.note(ctx, func(ctx context.Context) error { return n.c.Mails.MailGivenUp(ctx, m, why) })
	}
	n.c.Metrics.NotificationMail(resultFailed)
	return n.note(ctx, func(ctx context.Context) error { return n.c.Mails.MailFailed(ctx, m, why, pause(m.Attempts)) })
}

// pause is the pause after so many failures before this one.
func pause(failures int) time.Duration {
	wait := firstPause
	for ; failures > 0 && wait < longestPause; failures-- {
		wait *= 2
	}
	return min(wait, longestPause)
}

func (n *Notifier) note(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	return write(ctx)
}

// compose writes a mail.
func (n *Notifier) compose(m *webhook.DueMail) (notify.Mail, error) {
	token := base64.RawURLEncoding.EncodeToString(m.Token)
	if m.Notification == nil {
		return n.c.Links.Confirmation(token)
	}
	return n.c.Links.Notification(m.Notification, m.PortalURL, token)
}

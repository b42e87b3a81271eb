package notifications

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// Limits of the mails that ask for confirmation: one an hour to an address, ten a day for an owner.
const (
	confirmEvery   = time.Hour
	confirmsPerDay = 10
	day            = 24 * time.Hour
)

// Mails are what waits to be sent to people.
type Mails struct {
	core  *postgres.Core
	links *linkKey
}

// NewMails makes the Mails of notifications.
func NewMails(of *Notifications) *Mails { return &Mails{core: of.core, links: &of.links} }

// TakeMails takes at most limit mails that are due, the oldest first, for as long as a lease: after that they are due again, unless MailSent or
// MailFailed was called. It finds them by notification_mails_due. Mails of channels that are not used any more are removed.
func (s *Mails) TakeMails(ctx context.Context, limit int, lease time.Duration) (mails []webhook.DueMail, err error) {
	key, err := s.links.make(ctx, s.core.AsWorker())
	if err != nil {
		return nil, err
	}
	err = s.core.AsWorker().InTx(ctx, "take mails", func(ctx context.Context, tx pgx.Tx) error {
		mails = nil
		rows, err := tx.Query(ctx, `
			with due as (
				update notification_mails set next_at = now() + $2::bigint * interval '1 millisecond'
				where id = any(array(select id from notification_mails where next_at <= now() order by next_at limit $1 for update skip locked))
				returning id, channel_id, notification, attempts, created_at)
			select d.id, d.channel_id, d.notification, d.attempts, d.created_at, c.owner, c.address, c.state, s.portal_url
			from due d join notification_channels c on c.id = d.channel_id join notification_settings s on s.owner = c.owner order by d.id`,
			limit, lease.Milliseconds())
		if err != nil {
			return err
		}
		taken, err := pgx.CollectRows(rows, scanMail)
		if err != nil {
			return err
		}
		for i := range taken {
			send, err := taken[i].admit(ctx, tx)
			if err != nil {
				return err
			}
			if send {
				taken[i].Token = token(key, taken[i].Channel, taken[i].Address)
				mails = append(mails, taken[i].DueMail)
			}
		}
		return nil
	})
	return mails, err
}

// takenMail is a mail with what decides whether it is sent.
type takenMail struct {
	webhook.DueMail

	owner string
	state webhook.ChannelState

	unknown bool // it was written by a newer release: its turn comes again
}

func scanMail(row pgx.CollectableRow) (m takenMail, err error) {
	var (
		channel      [16]byte
		notification []byte
		state        int16
	)
	err = row.Scan(&m.ID, &channel, &notification, &m.Attempts, &m.CreatedAt, &m.owner, &m.Address, &state, &m.PortalURL)
	if err != nil {
		return m, err
	}
	m.Channel, m.state = channel, webhook.ChannelState(state) //nolint:gosec // written by us
	if notification != nil {
		m.Notification = new(webhook.Notification)
		m.unknown = json.Unmarshal(notification, m.Notification) != nil
	}
	return m, nil
}

// admit reports whether a mail is sent now. One that asks for confirmation waits while there were too many, and is counted.
func (m *takenMail) admit(ctx context.Context, tx pgx.Tx) (send bool, err error) {
	if m.unknown {
		return false, nil
	}
	confirmation := m.Notification == nil
	if confirmation && m.state != webhook.ChannelUnconfirmed || !confirmation && m.state != webhook.ChannelActive {
		_, err = tx.Exec(ctx, `delete from notification_mails where id = $1`, m.ID)
		return false, err
	}
	if !confirmation || m.Attempts > 0 { // a repeated one is counted already
		return true, nil
	}
	// Two mails to one address wait for each other.
	if _, err = tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('everpost/confirmations/' || current_schema(), 0))`); err != nil {
		return false, err
	}
	var until *time.Time
	err = tx.QueryRow(ctx, `
		select greatest(
			(select max(sent_at) + $3::bigint * interval '1 millisecond' from notification_confirmations
				where address_sha256 = $1 and sent_at > now() - $3::bigint * interval '1 millisecond'),
			(select sent_at + $4::bigint * interval '1 millisecond' from notification_confirmations
				where owner = $2 and sent_at > now() - $4::bigint * interval '1 millisecond' order by sent_at desc offset $5 limit 1))`,
		addressSum(m.Address), m.owner, confirmEvery.Milliseconds(), day.Milliseconds(), confirmsPerDay-1).Scan(&until)
	if err != nil {
		return false, err
	}
	if until != nil {
		_, err = tx.Exec(ctx, `update notification_mails set next_at = $2, created_at = $2 where id = $1`, m.ID, *until)
		return false, err
	}
	_, err = tx.Exec(ctx, `insert into notification_confirmations (id, owner, address_sha256) values ($1, $2, $3)`,
		uuid.Must(uuid.NewV7()), m.owner, addressSum(m.Address))
	return true, err
}

// MailSent removes a mail that the mail server has accepted.
func (s *Mails) MailSent(ctx context.Context, m *webhook.DueMail) error {
	return s.end(ctx, m, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			update notification_channels set refusals = 0, last_error = '', last_error_at = null, last_told_at = case when $2 then now() else last_told_at end
			where id = $1`, [16]byte(m.Channel), m.Notification != nil)
		return err
	})
}

// MailRefused removes a mail that the mail server has refused for good; so many in a row make its channel bounce. why holds no secret.
func (s *Mails) MailRefused(ctx context.Context, m *webhook.DueMail, why string) error {
	return s.end(ctx, m, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			update notification_channels set refusals = least(refusals + 1, 1000), last_error = $2, last_error_at = now(),
				state = case when refusals + 1 >= $3 and state in ($4, $5) then $6 else state end
			where id = $1`, [16]byte(m.Channel), why, webhook.MaxRefusals, int16(webhook.ChannelUnconfirmed), int16(webhook.ChannelActive),
			int16(webhook.ChannelBouncing))
		return err
	})
}

// MailGivenUp removes a mail that could not be sent for too long.
func (s *Mails) MailGivenUp(ctx context.Context, m *webhook.DueMail, why string) error {
	return s.end(ctx, m, func(ctx context.Context, tx pgx.Tx) error { return noteError(ctx, tx, m, why) })
}

func (s *Mails) end(ctx context.Context, m *webhook.DueMail, note func(context.Context, pgx.Tx) error) error {
	return s.core.AsWorker().InTx(ctx, "end a mail", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `delete from notification_mails where id = $1`, m.ID); err != nil {
			return err
		}
		return note(ctx, tx)
	})
}

// MailReturned gives a mail back that was taken and not tried.
func (s *Mails) MailReturned(ctx context.Context, m *webhook.DueMail, wait time.Duration) error {
	return s.core.AsWorker().WithConn(ctx, "give a mail back", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `update notification_mails set next_at = now() + $2::bigint * interval '1 millisecond' where id = $1`,
			m.ID, wait.Milliseconds())
		return err
	})
}

// MailFailed lets a mail wait that could not be sent this time.
func (s *Mails) MailFailed(ctx context.Context, m *webhook.DueMail, why string, wait time.Duration) error {
	return s.core.AsWorker().InTx(ctx, "let a mail wait", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			update notification_mails set attempts = attempts + 1, next_at = now() + $2::bigint * interval '1 millisecond' where id = $1`,
			m.ID, wait.Milliseconds())
		if err != nil {
			return err
		}
		return noteError(ctx, tx, m, why)
	})
}

func noteError(ctx context.Context, tx pgx.Tx, m *webhook.DueMail, why string) error {
	_, err := tx.Exec(ctx, `update notification_channels set last_error = $2, last_error_at = now() where id = $1`, [16]byte(m.Channel), why)
	return err
}

// mailsKept is how long a mail waits at most. A process that sends gives it up before.
const mailsKept = 4 * day

// PruneConfirmations removes what is remembered of mails that asked for confirmation more than a day ago, 1,000 at a time, by
// notification_confirmations_sent; and the oldest mails that no process sends any more, by notification_mails_due.
func (s *Mails) PruneConfirmations(ctx context.Context) error {
	return postgres.InBatches(ctx, func() (bool, error) {
		var gone int64
		err := s.core.AsWorker().WithConn(ctx, "prune confirmations", func(ctx context.Context, conn postgres.Querier) error {
			tag, err := conn.Exec(ctx, `
				delete from notification_confirmations where id = any(array(
					select id from notification_confirmations where sent_at < now() - $1::bigint * interval '1 millisecond' order by sent_at limit $2))`,
				day.Milliseconds(), postgres.DeleteBatch)
			gone = tag.RowsAffected()
			if err != nil {
				return err
			}
			tag, err = conn.Exec(ctx, `
				delete from notification_mails where id = any(array(
					select id from notification_mails where next_at < now() - $1::bigint * interval '1 millisecond' order by next_at limit $2))`,
				mailsKept.Milliseconds(), postgres.DeleteBatch)
			gone = max(gone, tag.RowsAffected())
			return err
		})
		return gone >= postgres.DeleteBatch, err
	})
}

package notifications

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

// actorOfMail is who confirms and unsubscribes: whoever reads the mails to an address.
func actorOfMail() webhook.Actor { return webhook.Actor{Name: "mail recipient"} }

// Knows reports whether a token is that of a channel, by notification_channels_token.
func (s *Notifications) Knows(ctx context.Context, token []byte) (known bool, err error) {
	err = s.core.AsOperator().WithConn(ctx, "look up a notification channel", func(ctx context.Context, conn postgres.Querier) error {
		return conn.QueryRow(ctx, `select exists (select from notification_channels where token = $1)`, token).Scan(&known)
	})
	return known, err
}

// Confirm makes the unconfirmed channel with a token active, and does nothing to one in another state. CodeNotFound: there is none.
func (s *Notifications) Confirm(ctx context.Context, token []byte) error {
	return s.change(ctx, token, webhook.ChannelActive, audit.NotificationsConfirm, []webhook.ChannelState{webhook.ChannelUnconfirmed})
}

// Unsubscribe ends the mails of the channel with a token, for good. CodeNotFound: there is none.
func (s *Notifications) Unsubscribe(ctx context.Context, token []byte) error {
	return s.change(ctx, token, webhook.ChannelUnsubscribed, audit.NotificationsUnsubscribe,
		[]webhook.ChannelState{webhook.ChannelUnconfirmed, webhook.ChannelActive, webhook.ChannelBouncing})
}

func (s *Notifications) change(ctx context.Context, token []byte, to webhook.ChannelState, action string, from []webhook.ChannelState) error {
	return s.core.AsOperator().InTx(ctx, "change a notification channel", func(ctx context.Context, tx pgx.Tx) error {
		var (
			id    [16]byte
			owner string
			state int16
		)
		err := tx.QueryRow(ctx, `select id, owner, state from notification_channels where token = $1 for update`, token).Scan(&id, &owner, &state)
		if postgres.IsNoRows(err) {
			return webhook.NotFound("channel")
		}
		if err != nil {
			return err
		}
		for _, one := range from {
			if int16(one) != state {
				continue
			}
			if _, err := tx.Exec(ctx, `update notification_channels set state = $2 where id = $1`, id, int16(to)); err != nil {
				return err
			}
			return audit.Write(ctx, tx, actorOfMail(), owner, action, webhook.ChannelID(id).String(), nil)
		}
		return nil
	})
}

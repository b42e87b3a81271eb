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

// Knows reports whether a token is that of a channel.
func (s *Notifications) Knows(ctx context.Context, token []byte) (known bool, err error) {
	key, err := s.links.known(ctx, s.core.AsOperator())
	if err != nil || key == nil || len(token) != TokenBytes {
		return false, err
	}
	err = s.core.AsOperator().WithConn(ctx, "look up a notification channel", func(ctx context.Context, conn postgres.Querier) error {
		var address string
		err := conn.QueryRow(ctx, `select address from notification_channels where id = $1 and endpoint_id is null`, [16]byte(channelOf(token))).Scan(&address)
		if postgres.IsNoRows(err) {
			return nil
		}
		known = err == nil && fits(token, key, address)
		return err
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
	key, err := s.links.known(ctx, s.core.AsOperator())
	if err != nil {
		return err
	}
	if key == nil || len(token) != TokenBytes {
		return webhook.NotFound("channel")
	}
	return s.core.AsOperator().InTx(ctx, "change a notification channel", func(ctx context.Context, tx pgx.Tx) error {
		var (
			owner, address string
			state          int16
		)
		id := [16]byte(channelOf(token))
		err := tx.QueryRow(ctx, `select owner, address, state from notification_channels where id = $1 and endpoint_id is null for update`, id).
			Scan(&owner, &address, &state)
		if postgres.IsNoRows(err) || err == nil && !fits(token, key, address) {
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

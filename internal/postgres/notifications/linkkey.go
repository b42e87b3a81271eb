package notifications

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// TokenBytes is the length of the token in a link of a mail: the id of its channel, and an HMAC-SHA256 of that and the address.
const TokenBytes = 16 + sha256.Size

// KeyPlace is what the encrypted key of the tokens is bound to.
const KeyPlace = "notifications/links"

// linkKey is the key from which the tokens are derived, so that none is stored. It is one for the installation, stored encrypted as other secrets
// are; the first process that sends a mail makes it, and it never changes.
type linkKey struct {
	sealer postgres.Sealer

	mu  sync.Mutex
	key []byte // once it is known
}

// token is the token in the links of mails to a channel.
func token(key []byte, id webhook.ChannelID, address string) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(id[:]) // never fails
	_, _ = mac.Write([]byte(strings.ToLower(address)))
	return mac.Sum(id[:])
}

// TokenOf returns the token in the links of mails to a channel.
func (s *Notifications) TokenOf(ctx context.Context, id webhook.ChannelID, address string) ([]byte, error) {
	key, err := s.links.make(ctx, s.core.AsWorker())
	if err != nil {
		return nil, err
	}
	return token(key, id, address), nil
}

// fits reports whether a token is that of its channel.
func fits(given, key []byte, address string) bool {
	return hmac.Equal(given, token(key, channelOf(given), address))
}

// channelOf is the channel of a token that has TokenBytes.
func channelOf(given []byte) (id webhook.ChannelID) {
	copy(id[:], given)
	return id
}

// known returns the key in the role of as; nil if no mail was sent yet.
func (k *linkKey) known(ctx context.Context, as postgres.Caller) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.read(ctx, as)
}

// make returns the key, and makes it if there is none.
func (k *linkKey) make(ctx context.Context, as postgres.Caller) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key, err := k.read(ctx, as); key != nil || err != nil {
		return key, err
	}
	fresh := make([]byte, sha256.Size)
	_, _ = rand.Read(fresh) // never fails
	sealed, err := k.sealer.Seal(ctx, hex.EncodeToString(fresh), KeyPlace)
	if err != nil {
		return nil, postgres.Translate("encrypt the key of links", err)
	}
	err = as.WithConn(ctx, "store the key of links", func(ctx context.Context, conn postgres.Querier) error {
		_, err := conn.Exec(ctx, `
			insert into notification_keys (id, kek_id, wrapped_key, nonce, ciphertext) values ($1, $2, $3, $4, $5) on conflict (single) do nothing`,
			uuid.Must(uuid.NewV7()), sealed.KEKID, sealed.WrappedKey, sealed.Nonce, sealed.Ciphertext)
		return err
	})
	if err != nil {
		return nil, err
	}
	return k.read(ctx, as) // another process may have been faster
}

// read returns the key; nil if there is none. The caller holds the lock.
func (k *linkKey) read(ctx context.Context, as postgres.Caller) ([]byte, error) {
	if k.key != nil {
		return k.key, nil
	}
	const op = "read the key of links"
	found, err := postgres.QueryAll(ctx, as, op, pgx.RowToStructByPos[postgres.Sealed],
		`select kek_id, wrapped_key, nonce, ciphertext from notification_keys limit 1`)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	text, err := k.sealer.Open(ctx, found[0], KeyPlace)
	if err != nil {
		return nil, postgres.Translate(op, err)
	}
	if k.key, err = hex.DecodeString(text); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return k.key, nil
}

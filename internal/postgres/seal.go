package postgres

import (
	"context"

	"github.com/everpost/everpost/internal/webhook"
)

// Sealed is a text encrypted with a data key of its own, and that key encrypted
// with the key-encryption key KEKID.
type Sealed struct {
	KEKID      string
	WrappedKey []byte
	Nonce      []byte
	Ciphertext []byte
}

// Sealer encrypts what must not be stored in plaintext. Additional is bound to the result:
// opening with another value fails, so that rows cannot be swapped.
type Sealer interface {
	Seal(ctx context.Context, plaintext, additional string) (Sealed, error)
	Open(ctx context.Context, sealed Sealed, additional string) (plaintext string, err error)
}

// NoSealer is for processes that neither read nor write secrets. Its methods fail.
type NoSealer struct{}

// Seal implements Sealer.
func (NoSealer) Seal(context.Context, string, string) (Sealed, error) { return Sealed{}, ErrNoSealer() }

// Open implements Sealer.
func (NoSealer) Open(context.Context, Sealed, string) (string, error) { return "", ErrNoSealer() }

// ErrNoSealer is the error of NoSealer.
func ErrNoSealer() error {
	return &webhook.Error{Code: webhook.CodeInternal, Message: "no key-encryption key is configured"}
}

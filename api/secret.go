package api

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/credential"
	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/webhook"
)

// givenSecret is a caller's own signing secret, as it is given.
type givenSecret struct {
	text     string
	encoding signature.Encoding
	encoded  bool // secret_encoding is given
}

// suppliedSecret is a caller's own signing secret, and how its text was read. It is zero without one.
type suppliedSecret struct {
	webhook.NewSecret

	Read, Warning string
}

// field reads a field of the request's body. It returns false for one that is not about the secret.
func (g *givenSecret) field(d *jsonDecoder, name string) bool {
	switch name {
	case "secret":
		set(d, &g.text, "", func(d *jsonDecoder) string {
			text, ok := d.str()
			if ok && credential.Trim(text) == "" {
				d.note("must not be empty; leave it out, and Everpost creates one")
			}
			return text
		})
	case "secret_encoding":
		if d.null() {
			return true
		}
		text, ok := d.str()
		g.encoding, g.encoded = signature.Encoding(text), true
		if ok && !g.encoding.Valid() {
			d.note(`must be "base64", "hex" or "text"`)
			g.encoding = ""
		}
	default:
		return false
	}
	return true
}

// read returns the secret after the body was read; refused is what else is wrong with that, and is in the error, too.
func (g *givenSecret) read(refused error) (suppliedSecret, error) {
	bad := func(field, message string) (suppliedSecret, error) {
		known, isKnown := errors.AsType[*webhook.Error](refused)
		if !isKnown {
			return suppliedSecret{}, cmp.Or(refused, error(webhook.Invalid(field, message)))
		}
		all := *known
		all.Fields = append(slices.Clone(known.Fields), webhook.FieldError{Field: field, Message: message})
		return suppliedSecret{}, &all
	}
	switch {
	case g.text == "" && g.encoded && refused == nil:
		return bad("secret_encoding", "has no effect without a secret")
	case credential.Trim(g.text) == "":
		return suppliedSecret{}, refused
	}
	text, err := credential.Clean(g.text, g.encoding == signature.EncodingText)
	if err != nil {
		return bad("secret", err.Error())
	}
	read, err := signature.ReadSecret(text, g.encoding)
	if err != nil {
		return bad("secret", err.Error())
	}
	return suppliedSecret{shownSecret(read.Secret), read.How, read.Warning}, refused
}

func shownSecret(secret signature.Secret) webhook.NewSecret {
	shown := webhook.NewSecret{Secret: secret.Reveal()}
	if public, ok := secret.Public(); ok {
		shown.PublicKey = public.String()
	}
	return shown
}

// firstSecret returns the secret of a new endpoint: the caller's, if it fits the scheme, or a
// generated one.
func firstSecret(scheme string, given webhook.NewSecret) (webhook.NewSecret, error) {
	if given.Secret != "" {
		return given, checkFits(scheme, given.Secret)
	}
	generate := signature.GenerateHMAC
	if scheme == webhook.SignatureV1a {
		generate = signature.GenerateEd25519
	}
	made, err := generate(rand.Reader)
	if err != nil {
		return webhook.NewSecret{}, fmt.Errorf("make a secret: %w", err)
	}
	return shownSecret(made), nil
}

func checkFits(scheme, secret string) error {
	if webhook.SecretFits(scheme, secret) {
		return nil
	}
	return webhook.UnfitSecret(scheme)
}

// secretHandler shows and rotates the signing secrets of endpoints.
type secretHandler struct{ secrets EndpointSecrets }

func (h *secretHandler) get(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	secret, err := h.secrets.EndpointSecret(c.Request().Context(), c.actor(), c.tenant, id)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, client.Secret{Secret: secret})
}

// readGrace reads the grace period of a rotation.
func readGrace(d *jsonDecoder) time.Duration {
	text, ok := d.str()
	if !ok {
		return 0
	}
	grace, err := time.ParseDuration(text)
	if err != nil || grace < 0 || grace > webhook.MaxGrace {
		d.note(`must be a duration from "0s" to "168h"`)
	}
	return grace
}

func (h *secretHandler) rotate(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	text, err := c.body()
	if err != nil {
		return err
	}
	rotation := webhook.Rotation{Grace: webhook.DefaultGrace}
	var given givenSecret
	if text != nil {
		err = readObject(text, func(d *jsonDecoder, name string) {
			switch name {
			case "grace":
				set(d, &rotation.Grace, webhook.DefaultGrace, readGrace)
			default:
				if !given.field(d, name) {
					d.unknown()
				}
			}
		})
	}
	own, err := given.read(err)
	if err != nil {
		return err
	}
	rotation.NewSecret = own.NewSecret
	rotated, err := h.secrets.RotateSecret(c.Request().Context(), c.actor(), c.tenant, id, rotation)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, client.Rotated{
		Secret: rotated.Secret, PublicKey: nullable(rotated.PublicKey), OldUntil: timestamp(rotated.OldUntil),
		SecretRead: own.Read, SecretWarning: own.Warning,
	})
}

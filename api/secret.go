package api

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"time"

	"github.com/everpost/everpost/internal/signature"
	"github.com/everpost/everpost/internal/webhook"
)

// readSecret reads a caller's own signing secret.
func readSecret(d *jsonDecoder) webhook.NewSecret {
	text, ok := d.str()
	if !ok {
		return webhook.NewSecret{}
	}
	secret, err := signature.ParseSecret(text)
	if err != nil {
		d.note("must be whsec_ followed by the base64 of 24 to 64 bytes, or whsk_ followed by the base64 of an ed25519 private key")
		return webhook.NewSecret{}
	}
	return shownSecret(secret)
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

func (s *Server) getEndpointSecret(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	secret, err := s.config.EndpointSecrets.EndpointSecret(c.Request().Context(), c.actor(), c.tenant, id)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, struct {
		Secret string `json:"secret"`
	}{secret})
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

// rotatedView is a new secret, shown to the caller that requested it.
type rotatedView struct {
	Secret    string     `json:"secret"`
	PublicKey *string    `json:"public_key"`
	OldUntil  *timestamp `json:"old_secrets_until"`
}

func (s *Server) rotateEndpointSecret(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	text, err := c.body()
	if err != nil {
		return err
	}
	rotation := webhook.Rotation{Grace: webhook.DefaultGrace}
	if text != nil {
		err := readObject(text, func(d *jsonDecoder, name string) {
			switch name {
			case "grace":
				set(d, &rotation.Grace, webhook.DefaultGrace, readGrace)
			case "secret":
				set(d, &rotation.NewSecret, webhook.NewSecret{}, readSecret)
			default:
				d.unknown()
			}
		})
		if err != nil {
			return err
		}
	}
	rotated, err := s.config.EndpointSecrets.RotateSecret(c.Request().Context(), c.actor(), c.tenant, id, rotation)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, rotatedView{rotated.Secret, nullable(rotated.PublicKey), nullable(timestamp(rotated.OldUntil))})
}

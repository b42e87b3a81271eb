package app

import (
	"net/http"
	"net/url"
	"strings"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/everpost/everpost/internal/codec"
	"github.com/everpost/everpost/internal/webhook"
	"github.com/everpost/everpost/worker"
)

const (
	codecPath = "/codec/"
	// maxCodecBytes limits the payloads of one request: the Web UI sends those of an event, which Temporal limits to 2 MiB.
	maxCodecBytes = 4 << 20
)

// encryptHistories lets a client decrypt what is in histories, and encrypt it if that is set. Without keys there is
// nothing to decrypt.
func (a *App) encryptHistories(o *client.Options) {
	if a.keys == nil {
		return
	}
	a.codec = codec.New(a.keys, a.options.Config.EncryptHistories)
	// A data key may come from a key management service, which takes longer than other code of a workflow may.
	values := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), a.codec)
	a.converter = values // the engine reads histories from before encryption was switched on, too
	if a.options.Config.EncryptHistories {
		values = codec.SealedInputs(values, worker.Inputs()...)
	}
	o.DataConverter = workflow.DataConverterWithoutDeadlockDetection(values)
	o.FailureConverter = temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
		DataConverter: o.DataConverter, EncodeCommonAttributes: a.options.Config.EncryptHistories,
	})
}

// codecHandler lets the Temporal Web UI show what is encrypted, by Temporal's protocol for remote codecs. It answers an
// operator's key only, as a Bearer token or as the password of Basic authentication, and pages of the Web UI only.
func (a admin) codecHandler() http.Handler {
	next := http.StripPrefix(strings.TrimSuffix(codecPath, "/"), converter.NewPayloadCodecHTTPHandler(a.codec))
	allowed := originOf(a.options.UIURL)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		h.Set("Cache-Control", "no-store")
		if origin := r.Header.Get("Origin"); origin != "" {
			if origin != allowed {
				http.Error(w, "Only pages of EVERPOST_UI_URL may ask for this.", http.StatusForbidden)
				return
			}
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Credentials", "true")
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Namespace")
			h.Set("Access-Control-Allow-Methods", "POST")
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if !a.isOperator(w, r) {
			return
		}
		if r.Method == http.MethodGet && r.URL.Path == codecPath { // where a browser is asked for the key, and keeps it
			_, _ = w.Write([]byte("The Temporal Web UI can read encrypted histories from now on.\n"))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxCodecBytes)
		next.ServeHTTP(w, r)
	})
}

// isOperator reports whether a request has an operator's key. If not, it has answered.
func (a admin) isOperator(w http.ResponseWriter, r *http.Request) bool {
	select {
	case <-a.started:
	default:
		http.Error(w, "starting", http.StatusServiceUnavailable)
		return false
	}
	_, text, basic := r.BasicAuth()
	if !basic {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if strings.EqualFold(scheme, "Bearer") {
			text = strings.TrimSpace(token)
		}
	}
	key, err := a.server.Authenticate(r.Context(), text)
	switch {
	case webhook.CodeOf(err) == webhook.CodeUnauthenticated:
		w.Header().Set("WWW-Authenticate", `Basic realm="everpost: an operator key as the password"`)
		http.Error(w, "an operator key is needed", http.StatusUnauthorized)
	case err != nil:
		http.Error(w, "the key cannot be checked now", http.StatusServiceUnavailable)
	case key.Scope != webhook.ScopeOperator:
		http.Error(w, "this needs an operator key", http.StatusForbidden)
	default:
		return true
	}
	return false
}

// originOf returns the origin of a URL as browsers send it, "" for none.
func originOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ""
	}
	host := strings.ToLower(u.Host)
	if (u.Scheme == "http" && u.Port() == "80") || (u.Scheme == "https" && u.Port() == "443") {
		host = strings.TrimSuffix(host, ":"+u.Port())
	}
	return strings.ToLower(u.Scheme) + "://" + host
}

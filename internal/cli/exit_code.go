package cli

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/alecthomas/kong"

	"github.com/everpost/everpost/internal/webhook"
)

// The exit codes of every command; docs/cli.md promises them to scripts.
const (
	exitDone        = 0
	exitFailed      = 1 // not done, or not with the result that was waited for
	exitUsage       = 2 // the command line or a setting is wrong; nothing was tried
	exitNotFound    = 3 // there is no such tenant, endpoint, delivery, …
	exitRefused     = 4 // the API or the database does not do it: key, field or state
	exitUnreachable = 5 // no answer, or not now: the same command may succeed later
)

// usageError is a mistake on the command line or in a setting.
type usageError struct{ error }

// Unwrap returns the cause.
func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as a mistake in the settings, for the exit code.
func Usage(err error) error { return usageError{err} }

// usage is a usageError with that text.
func usage(text string) error { return usageError{errors.New(text)} }

// usagef is a usageError with a formatted text.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitCode is the code for the error of a command. Several joined errors have the code
// that all of them share, or exitFailed.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		codes := map[int]bool{}
		code := exitFailed
		for _, one := range several.Unwrap() {
			code = exitCode(one)
			codes[code] = true
		}
		if len(codes) > 1 {
			return exitFailed
		}
		return code
	}
	if code, ok := ownCode(err); ok {
		return code
	}
	if inner := errors.Unwrap(err); inner != nil {
		return exitCode(inner)
	}
	return exitFailed
}

// ownCode is the code of an error itself, not of what it wraps.
func ownCode(err error) (code int, ok bool) {
	switch e := err.(type) { //nolint:errorlint // exitCode unwraps
	case usageError, *kong.ParseError:
		return exitUsage, true
	case *refusal:
		return e.exitCode(), true
	case *silence, *net.OpError:
		return exitUnreachable, true
	case *webhook.Error:
		return codeOfDomain(e.Code), true
	}
	return 0, false
}

// exitCode is the code of an answer that is an error.
func (r *refusal) exitCode() int {
	switch {
	case r.status == http.StatusNotFound:
		return exitNotFound
	case r.temporary():
		return exitUnreachable
	}
	return exitRefused
}

// codeOfDomain is the same for commands that use the database themselves.
func codeOfDomain(code webhook.Code) int {
	switch code {
	case webhook.CodeNotFound:
		return exitNotFound
	case webhook.CodeUnavailable, webhook.CodeRateLimited:
		return exitUnreachable
	case webhook.CodeInvalid, webhook.CodeUnauthenticated, webhook.CodeForbidden, webhook.CodeConflict, webhook.CodeQuota,
		webhook.CodeTooLarge, webhook.CodeMismatch:
		return exitRefused
	case webhook.CodeInternal:
	}
	return exitFailed
}

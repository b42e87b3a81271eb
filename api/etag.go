package api

import (
	"strconv"
	"strings"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	ifMatchHeader     = "If-Match"
	ifNoneMatchHeader = "If-None-Match"
)

// setETag says which revision of a resource the answer shows.
func (c call) setETag(revision int64) {
	c.Response().Header().Set("ETag", `"`+strconv.FormatInt(revision, 10)+`"`)
}

// ifMatch reads the header If-Match (RFC 9110 section 13.1.1): an ETag as it was given, or *. Without it every revision matches.
func (c call) ifMatch() (webhook.RevisionMatch, error) {
	values := c.Request().Header.Values(ifMatchHeader)
	if len(values) == 0 {
		return webhook.MatchAny, nil
	}
	if len(values) == 1 && values[0] == "*" {
		return webhook.MatchExisting, nil
	}
	text, quoted := strings.CutPrefix(values[0], `"`)
	text, closed := strings.CutSuffix(text, `"`)
	revision, err := strconv.ParseInt(text, 10, 64)
	if len(values) != 1 || !quoted || !closed || err != nil || revision <= 0 {
		return 0, webhook.Invalid(ifMatchHeader, "must be given once and be an ETag as an answer gave it, with its quotes, or *")
	}
	return webhook.RevisionMatch(revision), nil
}

// ifMatchOrNone reads the headers If-Match and If-None-Match (RFC 9110 section 13.1.2) of a request that may create: of the latter only * is of use, with which
// nothing is replaced.
func (c call) ifMatchOrNone() (webhook.RevisionMatch, error) {
	match, err := c.ifMatch()
	values := c.Request().Header.Values(ifNoneMatchHeader)
	switch {
	case err != nil || len(values) == 0:
		return match, err
	case len(values) != 1 || values[0] != "*":
		return 0, webhook.Invalid(ifNoneMatchHeader, "must be given once and be *")
	case match != webhook.MatchAny:
		return 0, webhook.Invalid(ifNoneMatchHeader, "cannot be given together with If-Match")
	}
	return webhook.MatchNothing, nil
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"

	"github.com/everpost/everpost/bench/internal/installation"
)

// browser is a session in the console. It reads pages and does not draw them.
type browser struct {
	base string
	http *http.Client
}

var csrfInput = regexp.MustCompile(`name="csrf" value="([^"]*)"`)

// logIn opens a session with the operator's key.
func logIn(ctx context.Context, api *installation.Client) (*browser, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, fmt.Errorf("log in: %w", err)
	}
	b := &browser{base: api.Base, http: &http.Client{Jar: jar}} // no timeout: it also follows live pages
	form, err := b.send(ctx, http.MethodGet, "/console/login", nil)
	if err != nil {
		return nil, err
	}
	token := csrfInput.FindSubmatch(form)
	if token == nil {
		return nil, errors.New("log in: the page has no form")
	}
	page, err := b.send(ctx, http.MethodPost, "/console/login", url.Values{"csrf": {string(token[1])}, "key": {api.Key()}})
	if err == nil && !strings.Contains(string(page), `action="/console/logout"`) {
		err = errors.New("log in: the key was refused")
	}
	return b, err
}

// open reads a page and returns its size in bytes.
func (b *browser) open(ctx context.Context, path string) (int, error) {
	page, err := b.send(ctx, http.MethodGet, path, nil)
	return len(page), err
}

func (b *browser) send(ctx context.Context, method, path string, form url.Values) ([]byte, error) {
	response, err := b.start(ctx, method, path, form, "text/html")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the page: %w", method, path, err)
	}
	return page, nil
}

// start sends a request and returns an answer 200, whose body the caller closes.
func (b *browser) start(ctx context.Context, method, path string, form url.Values, accept string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, b.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	request.Header.Set("Accept", accept)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := b.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s %s: answered %s", method, path, response.Status)
	}
	return response, nil
}

// follow opens a page and reads its live part until the context ends, which is not an error.
func (b *browser) follow(ctx context.Context, path string) error {
	if _, err := b.open(ctx, path); err != nil {
		return err
	}
	response, err := b.start(ctx, http.MethodGet, path, nil, "text/event-stream")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	read := 0
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadString('\n')
		read += len(line)
		switch {
		case err == nil:
		case ctx.Err() == nil:
			return fmt.Errorf("GET %s: the live page ended: %w", path, err)
		case read == 0:
			return fmt.Errorf("GET %s: the live page did not begin", path)
		default:
			return nil
		}
	}
}

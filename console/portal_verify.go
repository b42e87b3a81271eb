package console

import (
	"embed"
	"fmt"

	"github.com/everpost/everpost/client"
)

// Programs that verify a request, for each signature scheme: see docs/security-secrets.md. Tests run them.
//
//go:embed verify/*.txt
var verifyFiles embed.FS

// programLanguage is a language of a program.
type programLanguage struct{ Code, Name, file string }

func programLanguages() []programLanguage {
	return []programLanguage{
		{"go", "Go", "go"}, {"typescript", "TypeScript", "ts"}, {"python", "Python", "py"}, {"php", "PHP", "php"}, {"ruby", "Ruby", "rb"},
	}
}

// portalVerify is the page that says how to verify a request.
type portalVerify struct {
	Endpoint  client.Endpoint
	Name      string
	Languages []programLanguage
	Chosen    programLanguage
	Program   string
	Hex       bool // the scheme for older receivers, which has other headers
}

func showVerify(p *portalPage) error {
	v := portalVerify{Languages: programLanguages()}
	v.Chosen = v.Languages[0]
	for _, l := range v.Languages {
		if l.Code == p.r.URL.Query().Get("code") {
			v.Chosen = l
		}
	}
	if err := p.get(&v.Endpoint, nil, "endpoints", p.r.PathValue("id")); err != nil {
		return err
	}
	program, err := verifyFiles.ReadFile("verify/" + v.Endpoint.Signature + "." + v.Chosen.file + ".txt")
	if err != nil {
		return fmt.Errorf("read a program: %w", err)
	}
	v.Name, v.Program, v.Hex = shortName(v.Endpoint.Description, v.Endpoint.URL), string(program), v.Endpoint.Signature == "hex"
	return p.show(portalView{Template: "verify", Title: p.say("verify.title"), Entry: "endpoints", Data: v})
}

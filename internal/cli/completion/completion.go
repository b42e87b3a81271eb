// Package completion completes the command line: the scripts for the shells, and the command that they call.
package completion

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// ScriptCommand prints a completion script for a shell. The script calls the hidden
// command __complete for the candidates. Kong has no completion of its own, and no
// maintained library adds it: see docs/adr/0001, libraries.
type ScriptCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish." placeholder:"SHELL"`
}

// Help describes how to use the script.
func (*ScriptCommand) Help() string {
	return `For the shell that runs now:

  bash:  source <(everpost completion bash)
  zsh:   source <(everpost completion zsh)
  fish:  everpost completion fish | source

For every new one, put that line into ~/.bashrc, ~/.zshrc (after compinit) or ~/.config/fish/config.fish.`
}

// Run prints the script.
func (c *ScriptCommand) Run(stdout io.Writer) error {
	scripts := map[string]string{
		"bash": `_everpost() {
	local IFS=$'\n'
	COMPREPLY=($("$1" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
	[[ ${#COMPREPLY[@]} -gt 0 ]] || compopt -o default
}
complete -F _everpost everpost everpost-cluster`,
		"zsh": `_everpost() {
	local -a found
	found=("${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "${found[*]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _everpost everpost everpost-cluster`,
		"fish": `function __everpost_complete
	set -l words (commandline -opc) (commandline -ct)
	$words[1] __complete -- $words[2..-1] 2>/dev/null
end
complete -c everpost -a '(__everpost_complete)'
complete -c everpost-cluster -a '(__everpost_complete)'`,
	}
	_, err := fmt.Fprintln(stdout, scripts[c.Shell])
	return err
}

// CandidatesCommand prints the candidates for the last of the words.
type CandidatesCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints one candidate per line.
func (c *CandidatesCommand) Run(stdout io.Writer, model *kong.Application) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, candidate := range candidates(model.Node, words) {
		if _, err := fmt.Fprintln(stdout, candidate); err != nil {
			return err
		}
	}
	return nil
}

// candidates returns the completions of the last word, sorted: commands, flags, and the
// values of a flag or argument with a fixed set of values. It returns none where any value
// is valid.
func candidates(root *kong.Node, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	node, flags, pending, arguments := follow(root, words[:len(words)-1])
	var all []string
	switch name, typed, hasValue := strings.Cut(last, "="); {
	case pending != nil:
		all = choices(pending.Value)
	case hasValue && strings.HasPrefix(name, "--"):
		if flag := flags[strings.TrimPrefix(name, "--")]; flag != nil {
			for _, choice := range choices(flag.Value) {
				all = append(all, name+"="+choice)
			}
		}
		_ = typed // candidates are compared with the whole word
	case strings.HasPrefix(last, "-"):
		for name, flag := range flags {
			if !flag.Hidden {
				all = append(all, "--"+name)
			}
		}
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				all = append(all, child.Name)
			}
		}
		if arguments < len(node.Positional) {
			all = append(all, choices(node.Positional[arguments])...)
		}
	}
	all = slices.DeleteFunc(all, func(candidate string) bool { return !strings.HasPrefix(candidate, last) })
	slices.Sort(all)
	return slices.Compact(all)
}

// follow walks along the complete words. It returns the command that they name, its flags
// by name, the flag whose value comes next (nil for none), and the number of arguments.
func follow(root *kong.Node, words []string) (node *kong.Node, flags map[string]*kong.Flag, pending *kong.Flag, arguments int) {
	flags = map[string]*kong.Flag{}
	enter := func(to *kong.Node) {
		node = to
		for _, flag := range to.Flags {
			flags[flag.Name] = flag
		}
	}
	enter(root)
	for _, word := range words {
		if pending != nil { // the word is its value
			pending = nil
			continue
		}
		if name, ok := strings.CutPrefix(word, "--"); ok {
			if flag := flags[name]; flag != nil && !flag.IsBool() {
				pending = flag
			}
			continue
		}
		child := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word || slices.Contains(n.Aliases, word) })
		if child >= 0 {
			enter(node.Children[child])
			continue
		}
		arguments++
	}
	return node, flags, pending, arguments
}

// choices returns the valid values of a flag or argument, nil if any is valid.
func choices(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}

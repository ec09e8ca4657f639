package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/redquorum/redquorum/sim"
)

const completionManual = `
usage: redquorum completion bash|zsh|fish

Prints a script with which the shell completes verbs and flags.

examples of use, in the files that the shells read when they start:
  ~/.bashrc                    source <(redquorum completion bash)
  ~/.zshrc, after compinit     source <(redquorum completion zsh)
  ~/.config/fish/config.fish   redquorum completion fish | source

example:
  redquorum completion bash >/etc/bash_completion.d/redquorum
`

// shells have the scripts.
var shells = map[string]func([]helpPage) string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}

func completionVerb(_ context.Context, c *command) int {
	shell, status, ok := c.parseOne(c.flags("completion", completionManual), "the shell, bash, zsh or fish,")
	if !ok {
		return status
	}
	script := shells[shell]
	if script == nil {
		return c.fail("completion", usageError("the shell is %s; it must be bash, zsh or fish", quoted(shell)))
	}
	if _, err := io.WriteString(c.stdout, script(helpPages())); err != nil {
		return c.fail("completion", err)
	}
	return exitOK
}

// didYouMean names the one of the known words that is like a word; "" if there is none, or more than one.
func didYouMean(word string, known []string) string {
	best, least, twice := "", 3, false
	for _, k := range known {
		switch n := typos(strings.ToLower(word), strings.ToLower(k)); {
		case n < least && n <= max(len(k)/3, 1):
			best, least, twice = k, n, false
		case n == least:
			twice = true
		}
	}
	if best == "" || twice {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// typos is how many letters have to be put in, left out, replaced, or exchanged with the next one, to make one word of the other.
func typos(a, b string) int {
	before, last, row := []int(nil), []int(nil), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			wrong := 1
			if a[i] == b[j] {
				wrong = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+wrong)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

// nextWords are the words that can follow a verb.
func nextWords(verb string, pages []helpPage) (words []string) {
	switch verb {
	case "completion":
		return []string{"bash", "zsh", "fish"}
	case "help":
		for _, p := range pages {
			if len(p.words) == 1 {
				words = append(words, p.words[0])
			}
		}
	case "sim":
		for _, p := range pages {
			if len(p.words) == 2 {
				words = append(words, p.words[1])
			}
		}
	case "sim scenario":
		words = append(words, "list")
		for _, s := range sim.Scenarios() {
			words = append(words, s.ID)
		}
	}
	return words
}

// flagNames are those of the flags that is true for.
func flagNames(p helpPage, is func(helpFlag) bool) (names []string) {
	for _, f := range p.flags {
		if is(f) {
			names = append(names, f.name)
		}
	}
	return names
}

func bashScript(pages []helpPage) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# bash completion for redquorum
_redquorum() {
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} i words= values= files=
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W %q -- "$current"))
		return
	fi
	for ((i = 2; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then # the command follows
			((i + 1 < COMP_CWORD)) || COMPREPLY=($(compgen -c -- "$current"))
			return
		fi
	done
	if [[ $verb == sim && $COMP_CWORD -gt 2 && ${COMP_WORDS[2]} != -* ]]; then
		verb="sim ${COMP_WORDS[2]}"
	fi
	case $verb in
`, strings.Join(append(nextWords("help", pages), "help"), " "))
	for _, p := range pages {
		name := strings.Join(p.words, " ")
		words := append(flagNames(p, func(helpFlag) bool { return true }), nextWords(name, pages)...)
		values := flagNames(p, func(f helpFlag) bool { return f.value != "" && !f.takesFile() })
		files := flagNames(p, helpFlag.takesFile)
		fmt.Fprintf(&b, "\t%q) words=%q values=%q files=%q ;;\n", name, strings.Join(words, " "),
			" "+strings.Join(values, " ")+" ", " "+strings.Join(files, " ")+" ")
	}
	fmt.Fprintf(&b, `	help) words=%q ;;
	esac
	if [[ $files == *" $previous "* ]]; then
		return # bash completes files
	fi
	if [[ $values == *" $previous "* ]]; then
		compopt +o default 2>/dev/null
		return
	fi
	COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _redquorum redquorum
`, strings.Join(nextWords("help", pages), " "))
	return b.String()
}

// quotedForShell puts text into single quotes.
func quotedForShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// brief is the first clause of a flag's usage.
func brief(usage string) string {
	for _, end := range []string{" (", ": ", "; "} {
		usage, _, _ = strings.Cut(usage, end)
	}
	return usage
}

func zshScript(pages []helpPage) string {
	var b strings.Builder
	b.WriteString("#compdef redquorum\n_redquorum() {\n\tlocal -a verbs\n\tverbs=(\n")
	for _, p := range pages {
		if len(p.words) == 1 {
			fmt.Fprintf(&b, "\t\t%s\n", quotedForShell(p.words[0]+":"+p.summary))
		}
	}
	b.WriteString(`		'help:show the help of a verb'
	)
	if ((CURRENT == 2)); then
		_describe verb verbs
		return
	fi
	local verb=$words[2]
	shift words
	((CURRENT--))
	if [[ $verb == sim && $CURRENT -gt 2 && $words[2] != -* ]]; then
		verb="sim $words[2]"
		shift words
		((CURRENT--))
	fi
	case $verb in
`)
	plain := strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`)
	for _, p := range pages {
		name := strings.Join(p.words, " ")
		fmt.Fprintf(&b, "\t%s)\n\t\t_arguments -S", quotedForShell(name))
		for _, f := range p.flags {
			spec := "*" + f.name + "[" + plain.Replace(brief(f.usage)) + "]"
			switch {
			case f.takesFile():
				spec += ":" + f.value + ":_files"
			case f.value != "":
				spec += ":" + plain.Replace(f.value) + ": "
			}
			fmt.Fprintf(&b, " \\\n\t\t\t%s", quotedForShell(spec))
		}
		switch next := nextWords(name, pages); {
		case len(next) > 0:
			fmt.Fprintf(&b, " \\\n\t\t\t%s", quotedForShell("1:word:("+strings.Join(next, " ")+")"))
		case name == "run":
			b.WriteString(" \\\n\t\t\t'*::command:_normal'")
		case len(p.words) == 2:
			b.WriteString(" \\\n\t\t\t'*:file:_files'")
		}
		b.WriteString("\n\t\t;;\n")
	}
	b.WriteString(`	help)
		_describe verb verbs
		;;
	esac
}
if [[ $funcstack[1] == _redquorum ]]; then
	_redquorum "$@"
else
	compdef _redquorum redquorum
fi
`)
	return b.String()
}

func fishScript(pages []helpPage) string {
	var b strings.Builder
	b.WriteString(`# fish completion for redquorum
function __redquorum_at # whether the words before the cursor begin with these
	set -l words (commandline -opc)
	test "$words[2]" = "$argv[1]"; or return 1
	set -q argv[2]; or return 0
	test "$words[3]" = "$argv[2]"
end
function __redquorum_first # whether so many words come before
	test (count (commandline -opc)) -eq $argv[1]
end
`)
	verbs := append([]helpPage{}, pages...)
	for _, p := range append(verbs, helpPage{words: []string{"help"}, summary: "show the help of a verb"}) {
		at := "__redquorum_at " + strings.Join(p.words, " ")
		if len(p.words) == 1 {
			fmt.Fprintf(&b, "complete -c redquorum -n '__redquorum_first 1' -f -a %s -d %s\n", p.words[0], quotedForFish(p.summary))
		}
		if next := nextWords(strings.Join(p.words, " "), pages); len(next) > 0 {
			fmt.Fprintf(&b, "complete -c redquorum -n '%s; and __redquorum_first %d' -f -a '%s'\n", at, 1+len(p.words), strings.Join(next, " "))
		}
		for _, f := range p.flags {
			kind := "-f"
			switch {
			case f.takesFile():
				kind = "-r -F"
			case f.value != "":
				kind = "-x"
			}
			name := "-l " + strings.TrimPrefix(f.name, "--")
			if !strings.HasPrefix(f.name, "--") {
				name = "-s " + strings.TrimPrefix(f.name, "-")
			}
			fmt.Fprintf(&b, "complete -c redquorum -n '%s' %s %s -d %s\n", at, name, kind, quotedForFish(brief(f.usage)))
		}
	}
	return b.String()
}

func quotedForFish(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

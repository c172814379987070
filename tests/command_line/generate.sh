# SPDX-License-Identifier: BSD-3-Clause
# The manual page and the shells' completions, made from the command line: each has every flag that --help shows.
. "$(dirname "$0")/lib.sh"
commands=$("$DDP_DOCTOR" --help | sed -n '/^Commands:/,/^$/s/^ *\([a-z][a-z]*\)  .*/\1/p')
[ "$(echo "$commands" | wc -w)" -ge 9 ] || fail "commands in --help: $commands"
# Those on the lines that begin with one, not those that a text mentions.
flags_of() { "$DDP_DOCTOR" $1 --help | grep -E '^ +-' | grep -oE '^ +-[^A-Z=]*' | grep -oE -- '--?[a-z][a-z_-]*' | sort -u; }

# bash completes LINE, whose last word is under the cursor.
doctor 0 generate bash; cp "$work/out" "$work/ddp-doctor.bash"
completed() {
  bash --norc -c '
    source "$0"
    complete -p ddp-doctor >/dev/null || exit 1
    # As readline takes a line apart: = is a word of its own.
    read -ra COMP_WORDS <<<"${1//=/ = }"
    [[ $1 != *" " && $1 != *= ]] || [[ $1 == *= ]] || COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$1 COMP_POINT=${#1}
    _ddp_doctor ddp-doctor "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf "%s\n" "${COMPREPLY[@]}"' "$work/ddp-doctor.bash" "$1"
}
completes() {
  last="completion of '$1'"
  completed "$1" | sort >"$work/out"
  shift
  printf '%s\n' "$@" | sort | cmp -s - "$work/out" || fail "$last: not $*"
}
completes 'ddp-doctor ' $commands
completes 'ddp-doctor re' report
for command in $commands; do completes "ddp-doctor $command -" $(flags_of "$command"); done
completes 'ddp-doctor -' $(flags_of '')
completes 'ddp-doctor run --form' --format
completes 'ddp-doctor run --format js' json
completes 'ddp-doctor run --format=j' json junit
completes 'ddp-doctor check --quiet --fail-on ' error warning advice never
completes 'ddp-doctor explain DDP60' DDP601 DDP602
completes 'ddp-doctor demo o' orphan
completes 'ddp-doctor run --steps ' ''
completes 'ddp-doctor run --strategies by' bypass
mkdir "$work/here" "$work/here/runs"
: >"$work/here/run me.py"
(cd "$work/here" && completes 'ddp-doctor run r' 'run me.py' runs && completes 'ddp-doctor run --out r' runs &&
  completes 'ddp-doctor run -- ./tool --x' '' && completes 'ddp-doctor run -- r' 'run me.py' runs) || exit 1

# The other shells, where they are installed.
doctor 0 generate zsh; cp "$work/out" "$work/_ddp-doctor"
grep -q '^#compdef ddp-doctor$' "$work/_ddp-doctor" || fail "zsh would not autoload it"
for command in $commands; do
  for flag in $(flags_of "$command"); do
    sed -n "/^        $command) _arguments/,/;;\$/p" "$work/_ddp-doctor" | grep -qE -- "['*{,( ]$flag[]='},) []" || fail "zsh: no $flag of $command"
  done
done
if command -v zsh >/dev/null; then
  zsh -n "$work/_ddp-doctor" || fail "zsh cannot read it"
  [ "$(zsh -fc 'autoload -U compinit; compinit -D; eval "$("$1" generate zsh)"; echo $_comps[ddp-doctor]' zsh "$DDP_DOCTOR")" = _ddp-doctor ] ||
    fail "zsh does not register it"
fi
doctor 0 generate fish; cp "$work/out" "$work/ddp-doctor.fish"
if command -v fish >/dev/null; then
  fish -n "$work/ddp-doctor.fish" || fail "fish cannot read it"
  fish_completed() { HOME=$work fish --no-config -c "source $work/ddp-doctor.fish; complete -C '$1'" 2>"$work/err" | cut -f1 | sort; }
  for command in $commands; do
    [ "$(fish_completed "ddp-doctor $command --")" = "$(flags_of "$command" | grep -- '^--' | sort)" ] || fail "fish: flags of $command"
  done
  [ "$(fish_completed 'ddp-doctor run --format js')" = json ] || fail "fish: words of --format"
fi

# The manual page.
doctor 0 generate man; cp "$work/out" "$work/ddp-doctor.1"
for command in $commands; do
  for flag in $(flags_of "$command"); do
    sed -n "/^\.SS $command\$/,/^\.S[SH] /p" "$work/ddp-doctor.1" | grep -qF -- "\\fB$(echo "$flag" | sed 's/-/\\-/g')\\fR" || fail "man: no $flag of $command"
  done
done
if command -v groff >/dev/null; then
  groff -man -Tutf8 -ww -z "$work/ddp-doctor.1" 2>"$work/err" && [ ! -s "$work/err" ] || fail "groff complains of the manual page"
fi
doctor 2 generate html; complained 'html'
doctor 0 --help; not_printed 'generate'

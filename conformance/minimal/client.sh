#!/bin/sh
# A minimal client: add, take and finish, in shell with redis-cli. docs/write-a-client.md explains it.
#
#   bullmq-conformance lua scripts --version 5.62.0
#   bullmq-conformance client --version 5.62.0 -- sh conformance/minimal/client.sh scripts
set -eu
folder=$1
here=$(dirname "$0")

# One program for the server: each script as a function of its own KEYS and ARGV, then what makes these.
program() {
  printf 'local scripts = {}\n'
  for name in addStandardJob moveToActive moveToFinished; do
    printf 'scripts.%s = function(KEYS, ARGV)\n' "$name"
    cat "$folder/$name.lua"
    printf '\nend\n'
  done
  cat "$here/client.lua"
}

member() {
  printf '%s' "$1" | sed -n "s/.*\"$2\": *\"\{0,1\}\([^,\"}]*\).*/\1/p"
}

count=0
while IFS= read -r line; do
  count=$((count + 1))
  case $(member "$line" call) in
  hello)
    host=$(member "$line" host) port=$(member "$line" port) db=$(member "$line" db)
    sha=$(program | redis-cli -h "$host" -p "$port" -n "$db" -x SCRIPT LOAD)
    printf '{"n": %s, "result": {"client": "shell", "version": "1", "can": ["add", "take", "finish"], "options": ["jobId", "lifo"]}}\n' "$(member "$line" n)"
    ;;
  reset)
    printf '{"n": %s, "result": null}\n' "$(member "$line" n)"
    ;;
  *)
    redis-cli -h "$host" -p "$port" -n "$db" --raw EVALSHA "$sha" 0 "$line" "$(date +%s%3N)" "shell-$$-$count-$(date +%s%N)"
    ;;
  esac
done

exec 3<&0
"$@" 3<&- &
server=$!
trap 'exit 129' USR1
trap 'kill -TERM "$server"; (sleep 8; kill -USR1 $$) &' TERM INT HUP
(while read -r _ <&3; do :; done; kill -USR1 $$) &
exec 3<&-
while wait "$server"; code=$?; kill -0 "$server" 2>/dev/null; do :; done
exit "$code"

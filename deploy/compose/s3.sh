#!/bin/sh
# SeaweedFS with one key, and the two buckets of Accessa.
set -eu
cat > /tmp/s3.json <<JSON
{"identities": [{"name": "accessa", "actions": ["Admin", "Read", "Write", "List", "Tagging"],
  "credentials": [{"accessKey": "accessa", "secretKey": "$S3_SECRET_ACCESS_KEY"}]}]}
JSON
weed server -dir=/data -s3 -s3.config=/tmp/s3.json -volume.max=0 -master.volumeSizeLimitMB=1024 &
until echo "s3.bucket.create -name raw
s3.bucket.create -name parsed" | weed shell && echo s3.bucket.list | weed shell | grep -q parsed; do sleep 1; done
wait

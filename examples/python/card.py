"""Buys speech from card credit: run `python3 examples/python/card.py` in the folder of the sandbox."""

import json
import sys
import urllib.error
import urllib.request

with open("data/sandbox.json") as file:
    sandbox = json.load(file)
request = urllib.request.Request(
    sandbox["baseUrl"] + "/tts",
    data=json.dumps({"text": "Hello world, paid from card credit."}).encode(),
    headers={
        "content-type": "application/json",
        "x-credit-account": sandbox["creditAccount"],
        "x-credit-max-amount": "10000",  # In micro-USD. A higher price is refused.
    },
)
try:
    with urllib.request.urlopen(request, timeout=120) as response:
        audio = response.read()
except urllib.error.HTTPError as error:
    sys.exit(error.read().decode())
with open("card.mp3", "wb") as file:
    file.write(audio)
print("card.mp3", response.headers["x-credit-charged"], response.headers["x-credit-balance"])

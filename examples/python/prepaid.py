"""Buys speech from a prepaid balance in USDC: run `python3 examples/python/prepaid.py` in the folder of the sandbox."""

import base64
import json
import secrets
import sys
import time
import urllib.error
import urllib.request
import uuid
from datetime import datetime, timezone

from signatures import is_signed_es256, keccak256, sign, typed_data_digest

PREPAID_REQUEST = [
    ("account", "address"),
    ("method", "string"),
    ("path", "string"),
    ("bodyHash", "bytes32"),
    ("maxAmountMicroUsd", "uint256"),
    ("nonce", "string"),
    ("expiry", "uint256"),
]
TRANSFER = [
    ("from", "address"),
    ("to", "address"),
    ("value", "uint256"),
    ("validAfter", "uint256"),
    ("validBefore", "uint256"),
    ("nonce", "bytes32"),
]
MAX_MICRO_USD = 10_000
DEPOSIT_MICRO_USD = 100_000


def read_json(path):
    with open(path) as file:
        return json.load(file)


def call(path, body=None, headers=None):
    """The response with its status, headers and bytes, also of a refusal."""
    content_type = {} if body is None else {"content-type": "application/json"}
    request = urllib.request.Request(BASE_URL + path, data=body, headers={**content_type, **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=180) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def accepted(response):
    status, headers, body = response
    if status != 200:
        sys.exit(body.decode())
    return headers, body


def from_base64url(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def verified_metadata():
    """Signed by a key that the operator gave you, and not taken from the service."""
    document = json.loads(accepted(call("/.well-known/x402-service-metadata"))[1])
    payload, signature = document["payload"], document["signature"]
    pinned = [key["publicKeyJwk"] for key in TRUST if key["keyId"] == signature["keyId"]]
    if not pinned:
        sys.exit(f"{signature['keyId']} is no pinned key.")
    x, y = (int.from_bytes(from_base64url(pinned[0][name]), "big") for name in "xy")
    canonical = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    valid_until = datetime.fromisoformat(payload["validity"]["validUntil"].replace("Z", "+00:00"))
    is_genuine = is_signed_es256(canonical, from_base64url(signature["value"]), x, y)
    if not is_genuine or valid_until < datetime.now(timezone.utc):
        sys.exit("The metadata is not valid.")
    if payload["service"]["origin"] != BASE_URL:
        sys.exit(f"The metadata is that of {payload['service']['origin']}.")
    return payload


def prepaid_headers(method, path, signed_bytes, max_micro_usd):
    authentication = METADATA["prepaid"]["authentication"]
    domain = {
        "name": authentication["domainName"],
        "version": authentication["domainVersion"],
        "chainId": authentication["chainId"],
        "verifyingContract": PAYEE,
    }
    message = {
        "account": WALLET["address"],
        "method": method,
        "path": path,
        "bodyHash": "0x" + keccak256(signed_bytes).hex(),
        "maxAmountMicroUsd": max_micro_usd,
        "nonce": str(uuid.uuid4()),
        "expiry": int(time.time()) + 100,
    }
    signature = sign(typed_data_digest(domain, "PrepaidRequest", PREPAID_REQUEST, message), WALLET["privateKey"])
    values = [message[name] for name in ("account", "nonce", "expiry", "maxAmountMicroUsd")]
    return dict(zip(authentication["headers"], [*map(str, values), signature]))


def balance():
    path = f"/x402/accounts/{WALLET['address']}"
    response = call(path, headers=prepaid_headers("GET", path, b"", 0))
    return 0 if response[0] == 404 else json.loads(accepted(response)[1])["balanceMicroUsd"]


def deposit(micro_usd):
    body = json.dumps({"amountMicroUsd": micro_usd}).encode()
    challenge = json.loads(base64.b64decode(call("/x402/deposit", body)[1]["payment-required"]))
    (offer,) = challenge["accepts"]
    payment, offered = METADATA["payment"], [offer[name].lower() for name in ("network", "asset", "payTo", "amount")]
    if offered != [payment["network"], payment["asset"]["address"].lower(), PAYEE.lower(), str(micro_usd)]:
        sys.exit("The challenge does not match the signed metadata. Nothing was signed.")
    domain = {**offer["extra"], "chainId": offer["network"].split(":")[1], "verifyingContract": offer["asset"]}
    authorization = {
        "from": WALLET["address"],
        "to": offer["payTo"],
        "value": offer["amount"],
        "validAfter": "0",
        "validBefore": str(int(time.time()) + offer["maxTimeoutSeconds"]),
        "nonce": "0x" + secrets.token_hex(32),
    }
    digest = typed_data_digest(domain, "TransferWithAuthorization", TRANSFER, authorization)
    signed = {
        "x402Version": 2,
        "payload": {"authorization": authorization, "signature": sign(digest, WALLET["privateKey"])},
        "extensions": {"payment-identifier": {"info": {"required": True, "id": f"pay_{uuid.uuid4()}"}}},
        "resource": challenge["resource"],
        "accepted": offer,
    }
    header = base64.b64encode(json.dumps(signed).encode()).decode()
    accepted(call("/x402/deposit", body, {"payment-signature": header}))


sandbox, TRUST = read_json("data/sandbox.json"), read_json("data/trust.json")
BASE_URL, WALLET = sandbox["baseUrl"], sandbox["wallet"]
METADATA = verified_metadata()
PAYEE = next(payee["address"] for payee in METADATA["payment"]["payees"] if payee["status"] == "current")

if balance() < MAX_MICRO_USD:
    deposit(DEPOSIT_MICRO_USD)
body = json.dumps({"text": "Hello world, paid by a signature."}).encode()
headers, audio = accepted(call("/x402/tts", body, prepaid_headers("POST", "/x402/tts", body, MAX_MICRO_USD)))
with open("prepaid.mp3", "wb") as file:
    file.write(audio)
print("prepaid.mp3", headers["x-x402-charged"], headers["x-x402-balance"])

"""EIP-712 and ES256 with the standard library alone.

It is not hardened against timing. With real money, sign by `Account.sign_typed_data` of the package eth-account.
"""

import hashlib
import secrets
from typing import NamedTuple


def keccak256(data):
    padded = bytearray(data + b"\1" + bytes(-(len(data) + 1) % 136))
    padded[-1] |= 0x80
    lanes = [[0] * 5 for _ in range(5)]
    for start in range(0, len(padded), 136):
        for at in range(17):
            lanes[at % 5][at // 5] ^= int.from_bytes(padded[start + 8 * at : start + 8 * at + 8], "little")
        keccak_f(lanes)
    return b"".join(lanes[at][0].to_bytes(8, "little") for at in range(4))


def keccak_f(lanes):
    def rotate(lane, bits):
        return (lane << bits % 64 | lane >> (64 - bits % 64)) & (2**64 - 1)

    register = 1
    for _ in range(24):
        columns = [a ^ b ^ c ^ d ^ e for a, b, c, d, e in lanes]
        for x in range(5):
            mixed = columns[x - 1] ^ rotate(columns[(x + 1) % 5], 1)
            lanes[x] = [lane ^ mixed for lane in lanes[x]]
        x, y, moved = 1, 0, lanes[1][0]
        for step in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            moved, lanes[x][y] = lanes[x][y], rotate(moved, (step + 1) * (step + 2) // 2)
        for y in range(5):
            row = [lanes[x][y] for x in range(5)]
            for x in range(5):
                lanes[x][y] = row[x] ^ (~row[(x + 1) % 5] & row[(x + 2) % 5])
        for bit in range(7):
            register = (register << 1 ^ (register >> 7) * 0x71) % 256
            if register & 2:
                lanes[0][0] ^= 1 << (1 << bit) - 1


def hash_struct(name, fields, values):
    def encoded(kind, value):
        if kind == "string":
            return keccak256(value.encode())
        if kind == "uint256":
            return int(value).to_bytes(32, "big")
        return int(value, 16).to_bytes(32, "big")  # address, bytes32

    signature = f"{name}({','.join(f'{kind} {field}' for field, kind in fields)})"
    words = [encoded(kind, values[field]) for field, kind in fields]
    return keccak256(keccak256(signature.encode()) + b"".join(words))


DOMAIN = [("name", "string"), ("version", "string"), ("chainId", "uint256"), ("verifyingContract", "address")]


def typed_data_digest(domain, name, fields, values):
    return keccak256(b"\x19\1" + hash_struct("EIP712Domain", DOMAIN, domain) + hash_struct(name, fields, values))


class Curve(NamedTuple):
    p: int
    a: int
    order: int
    base: tuple

    def add(self, one, other):
        if one is None or other is None:
            return one or other
        (x1, y1), (x2, y2) = one, other
        if x1 == x2:
            if (y1 + y2) % self.p == 0:
                return None
            slope = (3 * x1 * x1 + self.a) * pow(2 * y1, -1, self.p)
        else:
            slope = (y2 - y1) * pow(x2 - x1, -1, self.p)
        x = (slope * slope - x1 - x2) % self.p
        return x, (slope * (x1 - x) - y1) % self.p

    def multiply(self, factor, point):
        product = None
        for bit in bin(factor)[2:]:
            product = self.add(product, product)
            if bit == "1":
                product = self.add(product, point)
        return product


SECP256K1 = Curve(
    p=2**256 - 2**32 - 977,
    a=0,
    order=0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141,
    base=(
        0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
        0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
    ),
)
P256 = Curve(
    p=2**256 - 2**224 + 2**192 + 2**96 - 1,
    a=-3,
    order=0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    base=(
        0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
    ),
)


def sign(digest, private_key):
    """The 65 bytes r, s, v in hexadecimal, with s in the lower half of the order."""
    order = SECP256K1.order
    nonce = secrets.randbelow(order - 1) + 1
    x, y = SECP256K1.multiply(nonce, SECP256K1.base)
    s = pow(nonce, -1, order) * (int.from_bytes(digest, "big") + x * int(private_key, 16)) % order
    is_high = s > order // 2
    return f"0x{x:064x}{order - s if is_high else s:064x}{27 + (y % 2 ^ is_high):02x}"


def is_signed_es256(message, signature, x, y):
    """Whether the P-256 key (x, y) signed the message; the signature is r and s, 32 bytes each."""
    order = P256.order
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    if len(signature) != 64 or not (0 < r < order and 0 < s < order):
        return False
    inverse = pow(s, -1, order)
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    point = P256.add(P256.multiply(digest * inverse % order, P256.base), P256.multiply(r * inverse % order, (x, y)))
    return point is not None and point[0] % order == r

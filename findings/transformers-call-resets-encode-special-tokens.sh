#!/usr/bin/env bash
# transformers 5.19.0 with tokenizers 0.23.3: a tokenizer's backend that was told to read control tokens as text
# (`backend_tokenizer.encode_special_tokens = True`) forgets it at the next call through transformers.
#
# Guess: the backend's switch stays as it was set, since nothing else was asked for.
# Seen: each call of the transformers tokenizer sets the backend's switch to its own `split_special_tokens`, which is False
# unless it was given. So "[PAD]" in a text is a control token again, in that call and in all later ones, also in direct
# calls of the backend. `split_special_tokens = True` set on the transformers tokenizer lasts in this process and is lost by
# saving and loading; given to the constructor it is saved.
#
# Output seen:
#   told: [2, 3, 4, 5]
#   called: [2, 1]
#   afterwards: switch False, backend [2, 1]
#   split_special_tokens set: [2, 3, 4, 5], saved and loaded [2, 1]
#   given to the constructor: [2, 3, 4, 5], saved and loaded [2, 3, 4, 5]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.19.0 tokenizers==0.23.3
cat > "$folder/seen.py" <<'PYTHON'
import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

words = {"[UNK]": 0, "[PAD]": 1, "hello": 2, "[": 3, "PAD": 4, "]": 5}
plain = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
plain.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="[UNK]", pad_token="[PAD]")
backend = tokenizer.backend_tokenizer
text = "hello [PAD]"

backend.encode_special_tokens = True
print("told:", backend.encode(text).ids)
print("called:", tokenizer(text)["input_ids"])
print(f"afterwards: switch {backend.encode_special_tokens}, backend {backend.encode(text).ids}")
tokenizer.split_special_tokens = True
given = PreTrainedTokenizerFast(
    tokenizer_object=plain, unk_token="[UNK]", pad_token="[PAD]", split_special_tokens=True
)
for how, one in (("split_special_tokens set", tokenizer), ("given to the constructor", given)):
    now = one(text)["input_ids"]
    one.save_pretrained(sys.argv[1])
    print(f"{how}: {now}, saved and loaded {PreTrainedTokenizerFast.from_pretrained(sys.argv[1])(text)['input_ids']}")
PYTHON
cat > "$folder/expected" <<'TEXT'
told: [2, 3, 4, 5]
called: [2, 1]
afterwards: switch False, backend [2, 1]
split_special_tokens set: [2, 3, 4, 5], saved and loaded [2, 1]
given to the constructor: [2, 3, 4, 5], saved and loaded [2, 3, 4, 5]
TEXT
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" "$folder/seen.py" "$folder/saved" 2>/dev/null | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
echo 'as described'

"""From a picture to markdown: find the lines, turn the picture upright, recognize each line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from rapidocr_onnxruntime import RapidOCR

from documents.parsers.ocr.layout import layout_markdown
from documents.parsers.ocr.rasterize import Picture

DETECTOR_SIDE = 1280  # pixels: its memory grows with the area, and it does not need the fine picture that reading needs
BELIEVED = 0.5  # RapidOCR's own threshold for a line's mean confidence
TALL = 1.5  # RapidOCR turns crops from this height to width on
SAMPLED = 6  # lines that decide which way is up
LOWEST = 8  # pixels: no letter can be told in a lower line
COLUMNS_MOST = 1_000_000  # of pixels at the recognizer's height: six dense pages, and 30 s
RECOGNIZER_HEIGHT = 48  # pixels
EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
# The model has learnt Chinese first, and sets wide signs among Latin letters.
NARROWED = {wide: wide - 0xFF01 + ord("!") for wide in range(0xFF01, 0xFF5F)} | {0x3000: " "}

# The model is shy of spaces: it runs words of tight or large print together unless a faint trace of one counts. From 10
# to 30 no sample got worse; at 100 words fall apart.
SPACE_WEIGHT = 30.0

Box = NDArray[np.float32]  # four corners, clockwise from the top left
Read = tuple[str, float]  # text and mean confidence

cv2.setNumThreads(1)
# One line at a time: what a line says must not depend on its neighbours. 160 is the least width that a line is padded
# to: RapidOCR's own 320 costs tables 1.7 times as long and reads them no better.
_ocr: Any = RapidOCR(
    intra_op_num_threads=1,
    inter_op_num_threads=1,
    det_limit_type="max",
    rec_batch_num=1,
    rec_img_shape=[3, RECOGNIZER_HEIGHT, 160],
)
_space: int = _ocr.text_rec.postprocess_op.dict[" "]
_session: Any = _ocr.text_rec.session


def _probabilities(crop: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """By line, step and letter, as the recognizer's session gives them, with the spaces strengthened."""
    found = np.array(_session(crop)[0])
    found[..., _space] = np.minimum(1.0, found[..., _space] * SPACE_WEIGHT)
    return [found]


_ocr.text_rec.session = _probabilities


def warm_up() -> None:
    """Run both models once in the zygote: a child can open no file that they would still need."""
    picture = np.full((320, 320, 3), 255, np.uint8)
    cv2.putText(picture, "Warm", (40, 160), cv2.FONT_HERSHEY_SIMPLEX, 2, (0, 0, 0), 3)
    recognize_image(picture)


def recognize_image(picture: Picture) -> str:
    """The picture's text in reading order, ``""`` when there is none."""
    if picture.min() == picture.max():
        return ""
    boxes = _detect(picture)
    if _lie_sideways(boxes):
        picture = np.ascontiguousarray(np.rot90(picture))
        boxes = _detect(picture)
    if _stands_on_its_head(picture, boxes):
        picture = np.ascontiguousarray(np.rot90(picture, 2))
        boxes = _detect(picture)
    boxes = _affordable(boxes)
    found = zip(boxes, _recognize_either_way(picture, boxes), strict=True)
    believed = [(box, text) for box, (text, sure) in found if sure >= BELIEVED and text.strip()]
    return layout_markdown([box for box, _ in believed], [text for _, text in believed])


def _detect(picture: Picture) -> list[Box]:
    ratio = min(1.0, DETECTOR_SIDE / max(picture.shape[:2]))
    small = cv2.resize(picture, None, fx=ratio, fy=ratio, interpolation=cv2.INTER_AREA) if ratio < 1 else picture
    boxes, _ = _ocr.text_det(small)
    found = [] if boxes is None else [np.asarray(box / ratio, np.float32) for box in boxes]
    return [box for box in found if min(_size(box)) >= LOWEST]


def _size(box: Box) -> tuple[float, float]:
    """Width and height."""
    return float(np.linalg.norm(box[1] - box[0])), float(np.linalg.norm(box[3] - box[0]))


def _lie_sideways(boxes: Sequence[Box]) -> bool:
    """Tell whether more of the text's length runs up or down than across."""
    sizes = [_size(box) for box in boxes]
    down = sum(height for width, height in sizes if height >= TALL * width)
    across = sum(width for width, height in sizes if width >= TALL * height)
    return down > across


def _stands_on_its_head(picture: Picture, boxes: Sequence[Box]) -> bool:
    """Tell whether the longest lines are read with more confidence upside down."""
    longest = sorted((box for box in boxes if not _is_tall(box)), key=lambda box: -_size(box)[0])[:SAMPLED]
    crops = _ocr.get_crop_img_list(picture, longest)
    upright, turned = _recognize(crops), _recognize([np.rot90(crop, 2) for crop in crops])
    return sum(sure for _, sure in turned) > sum(sure for _, sure in upright)


def _is_tall(box: Box) -> bool:
    width, height = _size(box)
    return height >= TALL * width


def _affordable(boxes: Sequence[Box]) -> list[Box]:
    """From the top of the page, as much as one page may cost: a noisy picture yields a thousand boxes of any length."""
    kept, spent = [], 0.0
    for box in sorted(boxes, key=lambda box: (float(box[0][1]), float(box[0][0]))):
        short, long = sorted(_size(box))
        spent += RECOGNIZER_HEIGHT * long / short
        if spent > COLUMNS_MOST:
            break
        kept.append(box)
    return kept


def _recognize_either_way(picture: Picture, boxes: Sequence[Box]) -> list[Read]:
    """Lines that run up or down beside an upright text are read both ways, and the surer one counts."""
    crops = _ocr.get_crop_img_list(picture, boxes)
    found = _recognize(crops)
    tall = [number for number, box in enumerate(boxes) if _is_tall(box)]
    for number, other in zip(tall, _recognize([np.rot90(crops[number], 2) for number in tall]), strict=True):
        found[number] = max(found[number], other, key=lambda read: read[1])
    return found


def _recognize(crops: Sequence[Picture]) -> list[Read]:
    found = _ocr.text_rec([np.ascontiguousarray(crop) for crop in crops])[0] if crops else []
    return [(text if EAST_ASIAN.search(text) else text.translate(NARROWED), sure) for text, sure in found]

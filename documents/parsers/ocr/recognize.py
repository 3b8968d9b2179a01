"""Text recognition: detect the lines of a picture, turn it upright, recognize each line, lay out as markdown."""

import re
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from rapidocr_onnxruntime import RapidOCR

from documents.parsers.ocr.layout import layout_markdown

DETECTOR_SIDE = 1280  # pixels: its memory grows with the area, and it needs less detail than recognition
BELIEVED = 0.5  # RapidOCR's own threshold for a line's mean confidence
TALL = 1.5  # RapidOCR turns crops with at least this ratio of height to width
SAMPLED = 6  # lines that decide the orientation
LOWEST = 8  # pixels: lower lines are illegible
COLUMNS_MOST = 1_000_000  # of pixels at the recognizer's height: six dense pages, and 30 s
RECOGNIZER_HEIGHT = 48  # pixels
EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
# The model was trained on Chinese first, and puts full-width characters among Latin letters.
NARROWED = {wide: wide - 0xFF01 + ord("!") for wide in range(0xFF01, 0xFF5F)} | {0x3000: " "}

# The model underestimates spaces: it joins words of tight or large print unless weak probabilities count. From 10 to 30
# no sample got worse; at 100 words are split.
SPACE_WEIGHT = 30.0

Picture = NDArray[np.uint8]  # rows, columns, blue-green-red
Box = NDArray[np.float32]  # four corners, clockwise from the top left
Reading = tuple[str, float]  # text and mean confidence

cv2.setNumThreads(1)
# One line at a time: its text must not depend on its neighbours. 160 is the least width that a line is padded to:
# RapidOCR's own 320 takes 1.7 times as long on tables and reads them no better.
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
    """Return the session's probabilities by line, step and letter, with those of spaces multiplied."""
    probabilities = np.array(_session(crop)[0])
    probabilities[..., _space] = np.minimum(1.0, probabilities[..., _space] * SPACE_WEIGHT)
    return [probabilities]


_ocr.text_rec.session = _probabilities


def warm_up() -> None:
    """Run both models once before the fork: a child can open no file that they would still need."""
    picture = np.full((320, 320, 3), 255, np.uint8)
    cv2.putText(picture, "Warm", (40, 160), cv2.FONT_HERSHEY_SIMPLEX, 2, (0, 0, 0), 3)
    image_to_markdown(picture)


def image_to_markdown(picture: Picture) -> str:
    """Return the picture's text in reading order, ``""`` when there is none."""
    if picture.min() == picture.max():
        return ""
    boxes = _detect_lines(picture)
    sizes = [_size(box) for box in boxes]
    down = sum(height for width, height in sizes if height >= TALL * width)
    across = sum(width for width, height in sizes if width >= TALL * height)
    if down > across:
        picture = np.ascontiguousarray(np.rot90(picture))
        boxes = _detect_lines(picture)
    # The longest lines decide: are they read with more confidence upside down?
    longest = sorted((box for box in boxes if not _is_tall(box)), key=lambda box: -_size(box)[0])[:SAMPLED]
    crops = _ocr.get_crop_img_list(picture, longest)
    turned = _recognize([np.rot90(crop, 2) for crop in crops])
    if sum(confidence for _, confidence in turned) > sum(confidence for _, confidence in _recognize(crops)):
        picture = np.ascontiguousarray(np.rot90(picture, 2))
        boxes = _detect_lines(picture)
    boxes = _limit_boxes(boxes)
    readings = zip(boxes, _recognize_boxes(picture, boxes), strict=True)
    lines = [(box, text) for box, (text, confidence) in readings if confidence >= BELIEVED and text.strip()]
    return layout_markdown([box for box, _ in lines], [text for _, text in lines])


def _detect_lines(picture: Picture) -> list[Box]:
    ratio = min(1.0, DETECTOR_SIDE / max(picture.shape[:2]))
    small = cv2.resize(picture, None, fx=ratio, fy=ratio, interpolation=cv2.INTER_AREA) if ratio < 1 else picture
    detected, _ = _ocr.text_det(small)
    boxes = [] if detected is None else [np.asarray(box / ratio, np.float32) for box in detected]
    return [box for box in boxes if min(_size(box)) >= LOWEST]


def _size(box: Box) -> tuple[float, float]:
    """Return width and height."""
    return float(np.linalg.norm(box[1] - box[0])), float(np.linalg.norm(box[3] - box[0]))


def _is_tall(box: Box) -> bool:
    width, height = _size(box)
    return height >= TALL * width


def _limit_boxes(boxes: Sequence[Box]) -> list[Box]:
    """Return the topmost boxes up to the cost of one page: a noisy picture yields a thousand boxes of any length."""
    affordable, columns = [], 0.0
    for box in sorted(boxes, key=lambda box: (float(box[0][1]), float(box[0][0]))):
        short, long = sorted(_size(box))
        columns += RECOGNIZER_HEIGHT * long / short
        if columns > COLUMNS_MOST:
            break
        affordable.append(box)
    return affordable


def _recognize_boxes(picture: Picture, boxes: Sequence[Box]) -> list[Reading]:
    """Read each box; vertical lines beside an upright text are read both ways, and the surer reading counts."""
    crops = _ocr.get_crop_img_list(picture, boxes)
    readings = _recognize(crops)
    tall = [number for number, box in enumerate(boxes) if _is_tall(box)]
    for number, other in zip(tall, _recognize([np.rot90(crops[number], 2) for number in tall]), strict=True):
        readings[number] = max(readings[number], other, key=lambda reading: reading[1])
    return readings


def _recognize(crops: Sequence[Picture]) -> list[Reading]:
    readings = _ocr.text_rec([np.ascontiguousarray(crop) for crop in crops])[0] if crops else []
    return [
        (text if EAST_ASIAN.search(text) else text.translate(NARROWED), confidence) for text, confidence in readings
    ]

// Runs the package beside this file on golden.json: every output has to be within the share of its largest value.
// Add this file, golden.json and the package to a test target, or set GOLDEN_FOLDER to the folder that holds them.

import CoreML
import CoreVideo
import XCTest

final class GoldenTests: XCTestCase {
    struct Tensor: Decodable {
        let shape: [Int]
        let type: String
        let data: Data
        let text: String?
    }

    struct Vector: Decodable {
        let inputs: [String: Tensor]
        let outputs: [String: Tensor]
    }

    struct Golden: Decodable {
        let package: String
        let relative: Double
        let labels: [String]?
        let vectors: [Vector]
    }

    func testGoldenVectorsOnCPU() async throws {
        try await compare(.cpuOnly)
    }

    func testGoldenVectorsOnAllUnits() async throws {
        try await compare(.all)
    }

    private var folder: URL {
        if let given = ProcessInfo.processInfo.environment["GOLDEN_FOLDER"] {
            return URL(fileURLWithPath: given, isDirectory: true)
        }
        return URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    }

    private func compare(_ units: MLComputeUnits) async throws {
        let data = try Data(contentsOf: folder.appendingPathComponent("golden.json"))
        let golden = try JSONDecoder().decode(Golden.self, from: data)
        let compiled = try await MLModel.compileModel(at: folder.appendingPathComponent(golden.package))
        let configuration = MLModelConfiguration()
        configuration.computeUnits = units
        let model = try MLModel(contentsOf: compiled, configuration: configuration)
        XCTAssertFalse(golden.vectors.isEmpty)
        for vector in golden.vectors {
            let features = try MLDictionaryFeatureProvider(dictionary: vector.inputs.mapValues { try feature($0) })
            let found = try await model.prediction(from: features)
            for (name, expected) in vector.outputs {
                let result = try XCTUnwrap(found.featureValue(for: name), "no output \(name)")
                try compare(name, result, expected, vector, golden)
            }
        }
    }

    private func compare(
        _ name: String, _ result: MLFeatureValue, _ expected: Tensor, _ vector: Vector, _ golden: Golden
    ) throws {
        switch result.type {
        case .string:
            try checkLabel(result.stringValue, vector, golden)
        case .dictionary:
            let labels = try XCTUnwrap(golden.labels, name)
            let found = try labels.map { try XCTUnwrap(result.dictionaryValue[$0], $0).doubleValue }
            check(name, found, numbers(expected), golden.relative)
        default:
            let array = try XCTUnwrap(result.multiArrayValue, name)
            check(name, (0..<array.count).map { array[$0].doubleValue }, numbers(expected), golden.relative)
        }
    }

    private func check(_ name: String, _ found: [Double], _ wanted: [Double], _ relative: Double) {
        XCTAssertEqual(found.count, wanted.count, name)
        guard found.count == wanted.count else { return }
        let allowed = allowance(wanted, relative)
        for (place, want) in wanted.enumerated() where want.isFinite {
            XCTAssertEqual(found[place], want, accuracy: allowed, "\(name)[\(place)]")
        }
    }

    private func allowance(_ wanted: [Double], _ relative: Double) -> Double {
        let largest = wanted.filter { $0.isFinite }.map { abs($0) }.max() ?? 0
        return relative * max(largest, 1e-6)
    }

    /// The label has to be the expected one, or one that scores as high within what is allowed.
    private func checkLabel(_ label: String, _ vector: Vector, _ golden: Golden) throws {
        let place = try XCTUnwrap(golden.labels?.firstIndex(of: label), "unknown label \(label)")
        let scored = try XCTUnwrap(vector.outputs.values.first { $0.type == "float64" }, "no scores")
        let scores = numbers(scored)
        let most = try XCTUnwrap(scores.max())
        XCTAssertEqual(scores[place], most, accuracy: 2 * allowance(scores, golden.relative), label)
    }

    private func feature(_ tensor: Tensor) throws -> MLFeatureValue {
        switch tensor.type {
        case "rgb": return try image(tensor, kCVPixelFormatType_32BGRA)
        case "gray": return try image(tensor, kCVPixelFormatType_OneComponent8)
        default: return try array(tensor)
        }
    }

    /// Rows of pixels from the top: red, green and blue of each, or its brightness, a byte for each.
    private func image(_ tensor: Tensor, _ format: OSType) throws -> MLFeatureValue {
        let (height, width) = (tensor.shape[0], tensor.shape[1])
        var made: CVPixelBuffer?
        XCTAssertEqual(CVPixelBufferCreate(nil, width, height, format, nil, &made), kCVReturnSuccess)
        let buffer = try XCTUnwrap(made)
        CVPixelBufferLockBaseAddress(buffer, [])
        defer { CVPixelBufferUnlockBaseAddress(buffer, []) }
        let base = try XCTUnwrap(CVPixelBufferGetBaseAddress(buffer)).assumingMemoryBound(to: UInt8.self)
        let stride = CVPixelBufferGetBytesPerRow(buffer)
        let bytes = [UInt8](tensor.data)
        for row in 0..<height {
            for column in 0..<width {
                let pixel = row * width + column
                if format == kCVPixelFormatType_OneComponent8 {
                    base[row * stride + column] = bytes[pixel]
                } else {
                    let place = row * stride + 4 * column
                    base[place] = bytes[3 * pixel + 2]
                    base[place + 1] = bytes[3 * pixel + 1]
                    base[place + 2] = bytes[3 * pixel]
                    base[place + 3] = 255
                }
            }
        }
        return MLFeatureValue(pixelBuffer: buffer)
    }

    private func array(_ tensor: Tensor) throws -> MLFeatureValue {
        let types: [String: MLMultiArrayDataType] = ["float32": .float32, "float16": .float16, "int32": .int32]
        let type = try XCTUnwrap(types[tensor.type], tensor.type)
        let made = try MLMultiArray(shape: tensor.shape.map { NSNumber(value: $0) }, dataType: type)
        for (place, number) in numbers(tensor).enumerated() {
            made[place] = NSNumber(value: number)
        }
        return MLFeatureValue(multiArray: made)
    }

    private func numbers(_ tensor: Tensor) -> [Double] {
        func read<T>(_ type: T.Type) -> [T] {
            let count = tensor.data.count / MemoryLayout<T>.size
            return tensor.data.withUnsafeBytes { raw in
                (0..<count).map { raw.loadUnaligned(fromByteOffset: $0 * MemoryLayout<T>.size, as: type) }
            }
        }
        switch tensor.type {
        case "float32": return read(Float.self).map(Double.init)
        case "float64": return read(Double.self)
        case "int32": return read(Int32.self).map(Double.init)
        default: return read(UInt16.self).map(halfPrecision)
        }
    }

    /// A float16 from its bits; `Float16` itself is missing on Macs with Intel processors.
    private func halfPrecision(_ bits: UInt16) -> Double {
        let sign: Double = bits & 0x8000 == 0 ? 1 : -1
        let exponent = Int((bits >> 10) & 0x1F)
        let fraction = Double(bits & 0x3FF)
        if exponent == 31 { return fraction == 0 ? sign * .infinity : .nan }
        if exponent == 0 { return sign * fraction * pow(2, -24) }
        return sign * (1 + fraction / 1024) * pow(2, Double(exponent - 15))
    }
}

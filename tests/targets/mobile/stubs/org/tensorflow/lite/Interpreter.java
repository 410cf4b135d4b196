package org.tensorflow.lite;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import recorded.Recorded;

public final class Interpreter implements AutoCloseable {
    public static class Options {
        public Options setNumThreads(int threads) {
            return this;
        }
    }

    private boolean reset;

    public Interpreter(ByteBuffer model, Options options) {
        if (!model.isDirect()) throw new IllegalArgumentException("the model is not in a direct buffer");
        if (model.get(4) != 'T' || model.get(5) != 'F') throw new IllegalArgumentException("not a TFLite file");
    }

    public void allocateTensors() {}

    public void resetVariableTensors() {
        reset = true;
    }

    public Tensor getInputTensor(int place) {
        return () -> Recorded.sizes("inputs")[place];
    }

    public Tensor getOutputTensor(int place) {
        return () -> Recorded.sizes("outputs")[place];
    }

    public void runForMultipleInputsOutputs(Object[] inputs, Map<Integer, Object> outputs) {
        if (!reset) throw new IllegalStateException("variables are those of the last call");
        reset = false;
        List<ByteBuffer> given = new ArrayList<>();
        for (Object input : inputs) given.add((ByteBuffer) input);
        byte[] answer = Recorded.answer(given);
        int at = 0;
        for (int place = 0; place < outputs.size(); place++) {
            int size = Recorded.sizes("outputs")[place];
            ((ByteBuffer) outputs.get(place)).put(answer, at, size);
            at += size;
        }
    }

    @Override
    public void close() {}
}
